#compdef attn
_attn_completion() {
    local -a spaced joined
    local line value
    for line in "${(@f)$(env _ATTN_COMPLETE=complete_fish _TYPER_COMPLETE_FISH_ACTION=get-args \
        _TYPER_COMPLETE_ARGS="${words[1,$CURRENT]}" ${words[1]} 2>/dev/null)}"; do
        [[ -z $line ]] && continue
        value=${line%%$'\t'*}
        [[ $line == *$'\t'* ]] && line="${value//:/\\:}:${line#*$'\t'}" || line=${value//:/\\:}
        if [[ $value == *: || $value =~ '(^|,)L[0-9]+H$' ]]; then joined+=("$line"); else spaced+=("$line"); fi
    done
    if (( ${#spaced} + ${#joined} == 0 )); then
        _files
        return
    fi
    [[ $PREFIX == --*=* ]] && compset -P '*='
    _describe -V attn spaced
    _describe -V attn joined -S ''
}
compdef _attn_completion attn
