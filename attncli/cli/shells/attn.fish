function __attn_candidates
    set -l begun (string match --regex -- '^--[^=]+=' (commandline --current-token --cut-at-cursor))
    set -g __attn_found (env _ATTN_COMPLETE=complete_fish _TYPER_COMPLETE_FISH_ACTION=get-args \
        _TYPER_COMPLETE_ARGS=(commandline --cut-at-cursor --current-process | string collect) attn 2>/dev/null)
    test -n "$begun"; and set __attn_found $begun$__attn_found
    test (count $__attn_found) -gt 0
end
complete --command attn --no-files --condition __attn_candidates --arguments '$__attn_found'
