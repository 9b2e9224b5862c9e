//! `berth completions`: words of the command from its definition, and names from the server that runs.

use clap_complete::Shell;

/// The script of a shell. Names of workloads, projects, nodes and so on are asked for when they are needed; without a server
/// there are none, and nothing is said.
pub(crate) fn script(shell: Shell, mut command: clap::Command) -> Vec<u8> {
    let mut script = Vec::new();
    clap_complete::generate(shell, &mut command, "berth", &mut script);
    match shell {
        Shell::Bash => script.extend_from_slice(BASH_NAMES.as_bytes()),
        Shell::Fish => script.extend_from_slice(FISH_NAMES.as_bytes()),
        Shell::Zsh => script = with_zsh_names(&String::from_utf8_lossy(&script)).into_bytes(),
        _ => {}
    }
    script
}

/// The function that the shell knows asks for names first, and leaves everything else to the one from the definition. It is
/// put before the last lines, which call it when the script is loaded at its first use.
fn with_zsh_names(script: &str) -> String {
    let script = script.replacen("\n_berth() {", "\n_berth_words() {", 1);
    match script.rfind("\nif [ \"$funcstack[1]\"") {
        Some(end) => format!("{}{ZSH_NAMES}{}", &script[..end], &script[end..]),
        None => script,
    }
}

const BASH_NAMES: &str = r#"
_berth_names() {
    _berth "$@"
    local current="${COMP_WORDS[COMP_CWORD]}" before="${COMP_WORDS[COMP_CWORD-1]}" names=""
    [[ "$current" == -* ]] && return
    case "$before" in
        -p|--project) names="$(berth project list -o name 2>/dev/null)" ;;
        --node) names="$(berth node list -o name 2>/dev/null)" ;;
        -*) return ;;
        *)
            case "${COMP_WORDS[1]}" in
                get|describe|why|logs|wait|delete|cancel|suspend|resume|events)
                    names="$(berth list -A -o name 2>/dev/null)" ;;
                project)
                    case "${COMP_WORDS[2]}" in
                        set|update|describe|get|delete) names="$(berth project list -o name 2>/dev/null)" ;;
                    esac ;;
                node)
                    case "${COMP_WORDS[2]}" in
                        describe|get|label|cordon|uncordon|drain) names="$(berth node list -o name 2>/dev/null)" ;;
                    esac ;;
                department)
                    case "${COMP_WORDS[2]}" in
                        update|describe|get|delete) names="$(berth department list -o name 2>/dev/null)" ;;
                    esac ;;
                volume)
                    case "${COMP_WORDS[2]}" in
                        delete) names="$(berth volume list -o name 2>/dev/null)" ;;
                    esac ;;
            esac ;;
    esac
    if [[ -n "$names" && COMP_CWORD -gt 1 ]]; then
        COMPREPLY=($(compgen -W "$names" -- "$current"))
    fi
}
complete -F _berth_names -o nosort -o bashdefault -o default berth
"#;

const ZSH_NAMES: &str = r#"
_berth_live_names() {
    local kind=""
    [[ "${words[CURRENT]}" == -* ]] && return 1
    case "${words[CURRENT-1]}" in
        -p|--project) kind="project list" ;;
        --node) kind="node list" ;;
        -*) return 1 ;;
        *)
            case "${words[2]} ${words[3]}" in
                project\ (set|update|describe|get|delete)) (( CURRENT > 3 )) && kind="project list" ;;
                node\ (describe|get|label|cordon|uncordon|drain)) (( CURRENT > 3 )) && kind="node list" ;;
                department\ (update|describe|get|delete)) (( CURRENT > 3 )) && kind="department list" ;;
                volume\ delete) (( CURRENT > 3 )) && kind="volume list" ;;
                (get|describe|why|logs|wait|delete|cancel|suspend|resume|events)\ *)
                    (( CURRENT > 2 )) && kind="list -A" ;;
            esac ;;
    esac
    [[ -n "$kind" ]] || return 1
    local -a names
    names=("${(@f)$(berth ${=kind} -o name 2>/dev/null)}")
    names=(${names:#})
    (( $#names )) || return 1
    compadd -- "${names[@]}"
}

_berth() {
    _berth_live_names || _berth_words "$@"
}
"#;

const FISH_NAMES: &str = r#"
function __berth_is
    set -l words (commandline -opc)
    contains -- "$words[2]" $argv
end
function __berth_is_below
    set -l words (commandline -opc)
    test "$words[2]" = "$argv[1]"; and contains -- "$words[3]" $argv[2..-1]
end
complete -c berth -n "__berth_is get describe why logs wait delete cancel suspend resume events" -f -a "(berth list -A -o name 2>/dev/null)"
complete -c berth -s p -l project -x -a "(berth project list -o name 2>/dev/null)"
complete -c berth -l node -x -a "(berth node list -o name 2>/dev/null)"
complete -c berth -n "__berth_is_below project set update describe get delete" -f -a "(berth project list -o name 2>/dev/null)"
complete -c berth -n "__berth_is_below node describe get label cordon uncordon drain" -f -a "(berth node list -o name 2>/dev/null)"
complete -c berth -n "__berth_is_below department update describe get delete" -f -a "(berth department list -o name 2>/dev/null)"
complete -c berth -n "__berth_is_below volume delete" -f -a "(berth volume list -o name 2>/dev/null)"
"#;
