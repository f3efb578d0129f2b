"""What is promised of real models and real files, promise by promise: which tests hold it, and here
those that stand nowhere else."""

from __future__ import annotations

import re
from pathlib import Path

import pytest
import resting_model
from asking import ask
from msgspec.structs import replace
from tokenizers import Tokenizer, decoders, models, pre_tokenizers

from attncli.draw.view import View
from attncli.features.heads.compute import heads
from attncli.features.heads.screen import heads_sentences
from attncli.inputs.vocabulary_tokenizer import from_tokenizers
from attncli.models.aliases import ALIASES

TESTS = Path(__file__).parents[1]
HELD = {
    "heads that rest are told apart from heads that look": (
        "features/run/test_rest.py::test_the_first_token_is_told_apart_from_what_a_word_looks_at",
        "features/find/test_rest.py::test_share_and_rank_are_told_without_the_first_token",
        "features/find/test_rest.py::test_another_word_in_front_decides",
        "features/heads/test_rest.py::test_the_head_that_rests_is_told_from_the_one_that_looks_before",
        "features/run/test_rest.py::test_regions_are_told_without_the_keys_where_heads_rest",
        "features/compare/test_rest.py::test_regions_are_compared_without_the_keys_where_heads_rest",
    ),
    "a superlative names what it leaves out": (
        "features/run/test_rest.py::test_a_neighbour_that_gets_more_is_named_unless_its_head_is_positional",
        "features/run/test_rest.py::test_every_link_listed_still_says_what_the_sentence_leaves_out",
    ),
    "nothing to say is said, and why": (
        "features/run/test_rest.py::test_a_query_whose_links_are_all_left_out_has_its_row_and_the_reason",
        "features/find/test_rest.py::test_a_link_that_the_mask_hides_is_told_the_other_way",
        "features/compare/test_rest.py::test_texts_that_differ_after_the_query_are_told_as_that",
        "features/compare/test_alignment.py::"
        "test_a_word_is_joined_where_another_number_of_tokens_stands_in_its_place",
        "cli/test_whole_words.py::test_a_special_token_that_is_asked_for_by_name_has_its_row",
    ),
    "a token is named by what it covers": (
        "draw/test_piece_names.py::test_no_screen_shows_bytes_and_every_word_can_be_named",
        "draw/test_piece_names.py::test_an_answer_names_the_word_that_a_piece_is_of",
        "cli/test_words_of_several_tokens.py::test_a_word_of_several_tokens_is_taken",
    ),
    "key indices carry their side": (
        "draw/test_effect_sentences.py::test_keys_of_cross_attention_are_words_of_the_other_text",
        "cli/test_source.py::test_a_link_to_the_text_that_is_read_is_cut",
    ),
    "the largest of signed numbers is the farthest from zero": (
        "draw/test_effect_sentences.py::"
        "test_of_signed_numbers_the_largest_is_the_farthest_from_zero",
    ),
    "all that reach a score are named": (
        "draw/test_effect_sentences.py::test_a_random_change_is_told_by_its_side",
        "draw/test_effect_sentences.py::test_changes_beside_probabilities_have_their_unit",
    ),
    "what GGUF files hold is read, chat templates too": (
        "cli/test_chat_variables.py::test_a_gguf_file_has_its_own_template_and_is_no_folder",
        "cli/test_chat_variables.py::test_templates_with_names",
    ),
    "spans tile the text": (
        "inputs/test_piece_spans.py::test_spans_tile_the_text",
        "inputs/test_piece_spans.py::"
        "test_special_unknown_typed_and_added_are_told_by_id_and_by_the_tokenizer",
    ),
    "generation equals running the whole text": (
        "features/generate/test_generate.py::test_a_continuation_has_the_numbers_of_the_whole_text",
    ),
    "adapters are merged as PEFT does": (
        "models/test_adapter.py::test_a_merge_is_pefts",
        "models/test_adapter.py::test_a_larger_vocabulary_is_merged_with_its_tables",
    ),
    "files are read, or called what they are": (
        "models/test_published_layouts.py::test_a_pointer_of_git_lfs_is_called_that",
        "models/test_published_layouts.py::test_names_with_something_before_them_are_the_same_model",
        "models/test_published_layouts.py::test_a_tied_file_with_the_head_alone_is_read",
        "inputs/test_vocabulary_files.py::"
        "test_a_vocabulary_without_tokenizer_json_cuts_as_transformers_does",
        "inputs/test_near_places.py::test_a_folder_one_step_off_is_told_the_right_one",
        "cli/test_errors.py::test_no_encoding_is_guessed_from_bytes_that_are_not_utf8",
        "draw/test_missing_letters.py::test_letters_that_no_font_has_are_named",
    ),
    "sentence pairs have their segments": (
        "models/test_sentence_pairs.py::test_the_weights_of_a_pair_are_those_of_transformers",
    ),
    "Python answers as the commands do": (
        "test_public_names.py::test_every_public_name_works_as_the_first_call_of_a_process",
        "test_public_names.py::test_a_command_and_its_function_give_the_same_document",
        "test_guide_tables.py::test_every_call_in_the_table_of_functions_runs",
        "test_notebook.py::test_a_notebook_shows_a_document_once",
    ),
    "what newcomers type is understood, or answered by the command meant": (
        "cli/test_understood.py::test_numbers_are_read_as_any_list_writes_them",
        "cli/test_understood.py::test_the_error_tells_the_command_meant",
        "cli/test_understood.py::test_there_is_one_list_of_metrics",
        "cli/test_understood.py::test_there_is_one_count_of_families",
        "cli/test_understood.py::test_does_it_matter_is_a_command_that_can_be_copied",
    ),
    "Chinese is written as Chinese is": (
        "test_chinese.py::test_the_catalogue_has_no",
        "test_chinese.py::test_a_page_cuts_no_cell_and_breaks_lines_as_they_are_written",
    ),
    "published tokenizers cut as their makers' do": (
        "inputs/test_piece_spans.py::test_a_token_of_a_pair_has_its_text_and_its_type_of_segment",
    ),
    "published configurations are accepted at neutral values": (
        "models/test_published_layouts.py::test_yarn_with_settings_that_are_zero",
        "models/test_published_layouts.py::test_llama_3_scaling_without_wavelengths_between",
        "models/test_published_layouts.py::test_a_family_under_another_name",
        "models/test_published_layouts.py::test_what_a_config_states_and_the_family_always_does",
    ),
    "a config.json alone tells what a model costs": (
        "features/cost/test_published_figures.py::test_a_config_alone_gives_the_published_figures",
    ),
    "variables of chat templates are given, or told": (
        "cli/test_chat_variables.py::test_variables_come_from_the_chat_and_from_the_line",
        "cli/test_chat_variables.py::test_a_variable_that_the_template_does_not_read_is_told",
        "cli/test_chat_variables.py::test_the_filter_format",
        "models/test_published_layouts.py::"
        "test_matrices_of_model_optimizer_are_read_number_by_number",
    ),
}  # fmt: skip
"""Every promise, and the tests that hold it."""


@pytest.mark.parametrize("promise", HELD)
def test_a_promise_has_its_tests(promise: str) -> None:
    for place in HELD[promise]:
        file, _, name = place.partition("::")
        assert re.search(rf"^def {name}\(", (TESTS / file).read_text("utf-8"), re.M), place


def test_every_head_that_reaches_a_score_is_named() -> None:
    """Where several heads give the word before more than half of their weight, each is named."""
    document = heads(resting_model.model(), "cdbeacfa")
    rests, _, before = document.heads
    twice = replace(document, heads=[rests, replace(before, head=1), before])
    said = " ".join(heads_sentences(twice, View(width=300)))
    found = re.search(r"Layer 0 head 1 looks at the previous word \((\S+)\)", said)
    assert found
    assert f"So does layer 0 head 2 ({found[1]})." in said
    assert "So do" not in " ".join(heads_sentences(document, View(width=300)))


def test_a_run_of_blanks_is_one_token_and_one_span() -> None:
    """A token that is eight blanks covers those eight blanks."""
    hf = Tokenizer(models.BPE({"Ġ": 0, "a": 1, "ĠĠ": 2, "ĠĠĠĠ": 3, "Ġ" * 8: 4}, [
        ("Ġ", "Ġ"), ("ĠĠ", "ĠĠ"), ("Ġ" * 4, "Ġ" * 4),
    ]))  # fmt: skip
    hf.pre_tokenizer = pre_tokenizers.ByteLevel(add_prefix_space=False, use_regex=False)
    hf.decoder = decoders.ByteLevel()
    tokens = from_tokenizers(hf, "blanks").encode(f"a{' ' * 8}a")
    assert [(token.text, token.start, token.end) for token in tokens] == [
        ("a", 0, 1), (" " * 8, 1, 9), ("a", 9, 10),
    ]  # fmt: skip


@pytest.mark.thorough
def test_every_head_that_learned_is_named() -> None:
    """Both heads of the second layer become induction heads, and both are named."""
    said = " ".join(ask("learn", "induction", "--brief").out.split())
    assert re.search(r"Layer 1 head 1 became an induction head: 0\.9\d", said)
    assert re.search(r"So did layer 1 head 0 \(0\.9\d\)", said)


SENTENCES = {
    ("smollm2", "run", "The capital of France is Paris", "--query", "is"): (
        'Besides its neighbour "France" (0.90, layer 23 head 4), "is" looks most at "capital"',
        "Not counted: the first token, where heads rest; the word itself; its neighbours.",
    ),
    ("smollm2", "run", "The cat", "--query", "cat"): (
        '"cat" is token 2 of 2 and sees only "The" and itself',
    ),
    ("smollm2", "find", "The cat sat", "--from", "The", "--to", "sat"): (
        '"The" cannot see "sat", which comes after it',
        'The other way "sat" gives "The" most in',
    ),
    ("smollm2", "compare", "她喜欢苹果，他", "她喜欢香蕉，他", "--query", "苹果"): (
        'The link that changed most: "苹果" (in B "香蕉")',
    ),
    ("gemma3", "compare", "她喜欢猫，他", "她喜欢小狗，他", "--query", "猫"): (
        'The link that changed most: "猫" (in B "小狗")',
    ),
    ("gemma3", "run", "The animal was tired", "--query", "<bos>"): (
        '"<bos>" sees nothing but itself',
    ),
    ("smollm2", "heads", "The animal didn't cross the street because it was too tired"): (
        "Layer 16 head 0 looks at the previous token (0.74). So do layer 1 head 2 (0.69)",
    ),
    ("minilm", "compare", "I like apples", "I like pears", "--query", "I"): (
        '"I" → "apples" (in B "pears")',
    ),
}
"""Of questions about trained models, what the answer says."""


@pytest.mark.thorough
@pytest.mark.parametrize("question", SENTENCES, ids=" ".join)
def test_sentences_about_trained_models_are_true(question: tuple[str, ...]) -> None:
    """What is said of SmolLM2, Gemma 3 and MiniLM, whose weights were looked at by hand."""
    model, *line = question
    package = ALIASES[model].package
    assert package is not None
    if package.places() is None:
        pytest.skip(f"{model} is not installed")
    found = ask(*line, "--model", model, "--brief", width=200)
    assert found.code == 0, found.err
    said = " ".join(found.out.split())
    for sentence in SENTENCES[question]:
        assert sentence in said
