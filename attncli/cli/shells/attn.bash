_attn_completion() {
    local IFS=$'\n' line=${COMP_LINE:0:COMP_POINT} typed begun cur=${COMP_WORDS[COMP_CWORD]}
    COMPREPLY=($(env _ATTN_COMPLETE=complete_fish _TYPER_COMPLETE_FISH_ACTION=get-args \
        _TYPER_COMPLETE_ARGS="$line" "$1" 2>/dev/null))
    COMPREPLY=("${COMPREPLY[@]%%$'\t'*}")
    typed=${line##*[[:space:]]}
    [[ $typed == --*=* ]] && COMPREPLY=("${COMPREPLY[@]/#/${typed%%=*}=}")
    # bash completes what stands behind the last of its COMP_WORDBREAKS, where that is not in quotes
    [[ $cur == [:=] ]] && cur=
    begun=${typed%"$cur"}
    [[ $begun != "$typed" || -z $cur ]] && COMPREPLY=("${COMPREPLY[@]#"$begun"}")
    if [[ ${#COMPREPLY[@]} == 1 && (${COMPREPLY[0]} == *[:=] || ${COMPREPLY[0]} =~ (^|,)L[0-9]+H$) ]]; then
        compopt -o nospace
    fi
}
complete -o default -F _attn_completion attn
