//! `berth completions`: words of the command from its definition, and names from the server that runs.

use clap_complete::Shell;

/// The script of a shell. Where the shell lets one be added cheaply, names of workloads, projects and nodes are asked for
/// when they are needed; without a server there are none, and nothing is said.
pub(crate) fn script(shell: Shell, mut command: clap::Command) -> Vec<u8> {
    let mut script = Vec::new();
    clap_complete::generate(shell, &mut command, "berth", &mut script);
    script.extend_from_slice(match shell {
        Shell::Bash => BASH_NAMES.as_bytes(),
        Shell::Fish => FISH_NAMES.as_bytes(),
        _ => b"",
    });
    script
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
                        describe|get|cordon|uncordon|drain) names="$(berth node list -o name 2>/dev/null)" ;;
                    esac ;;
            esac ;;
    esac
    if [[ -n "$names" && COMP_CWORD -gt 1 ]]; then
        COMPREPLY=($(compgen -W "$names" -- "$current"))
    fi
}
complete -F _berth_names -o nosort -o bashdefault -o default berth
"#;

const FISH_NAMES: &str = r#"
complete -c berth -n "__fish_seen_subcommand_from get describe why logs wait delete cancel suspend resume events" -f -a "(berth list -A -o name 2>/dev/null)"
complete -c berth -s p -l project -x -a "(berth project list -o name 2>/dev/null)"
complete -c berth -n "__fish_seen_subcommand_from project; and __fish_seen_subcommand_from set update describe delete" -f -a "(berth project list -o name 2>/dev/null)"
complete -c berth -n "__fish_seen_subcommand_from node; and __fish_seen_subcommand_from describe cordon uncordon drain" -f -a "(berth node list -o name 2>/dev/null)"
"#;
