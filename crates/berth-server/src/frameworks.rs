//! What starts a command on the workers of a gang, so that they find each other.
//!
//! It is a line of shell before the command, because what it needs, such as the port at which the gang meets, is known where the
//! worker runs and not before.

use berth_api::Framework;

/// What a worker runs in place of its command and arguments.
pub(crate) struct Started {
    pub(crate) command: Vec<String>,
    pub(crate) args: Vec<String>,
}

/// Of the gang, what a line needs to know.
pub(crate) struct Gang {
    pub(crate) rank: u32,
    /// Workers that must be there, and that may be.
    pub(crate) min: u32,
    pub(crate) max: u32,
    /// Workers that are there now.
    pub(crate) now: u32,
    /// Devices of each worker.
    pub(crate) devices: usize,
}

/// Puts a framework before a command.
pub(crate) fn start(framework: Framework, gang: &Gang, command: &[String], args: &[String]) -> Started {
    let words: Vec<String> = command.iter().chain(args).cloned().collect();
    let line = match framework {
        Framework::None => return Started { command: command.to_vec(), args: args.to_vec() },
        Framework::Torchrun => torchrun(gang),
        Framework::Mpi if gang.rank == 0 => mpirun(gang),
        Framework::Mpi => return shell(WAIT_FOR_FIRST.into(), "worker", Vec::new()),
    };
    match framework {
        Framework::Torchrun => shell(line, "torchrun", for_torchrun(words)),
        _ => shell(line, "mpirun", words),
    }
}

/// The command and the arguments of every worker of a gang that `torchrun` starts, with so many workers at least and at most.
pub fn started_by_torchrun(
    (min, max): (u32, u32),
    devices: usize,
    command: &[String],
    args: &[String],
) -> (Vec<String>, Vec<String>) {
    let gang = Gang { rank: 0, min, max, now: max, devices };
    let Started { command, args } = start(Framework::Torchrun, &gang, command, args);
    (command, args)
}

fn shell(line: String, name: &str, words: Vec<String>) -> Started {
    let mut args = vec!["-c".to_owned(), line, name.to_owned()];
    args.extend(words);
    Started { command: vec!["/bin/sh".into()], args }
}

/// Those who may join later are waited for by the rendezvous, not by us.
fn torchrun(gang: &Gang) -> String {
    let nodes =
        if gang.min == gang.max { gang.max.to_string() } else { format!("{}:{}", gang.min, gang.max) };
    let processes = gang.devices.max(1);
    format!(
        "exec torchrun --nnodes={nodes} --nproc-per-node={processes} --rdzv-id=\"$JOB_UUID\" --rdzv-backend=c10d \
         --rdzv-endpoint=\"${{MASTER_ADDR:-localhost}}:${{MASTER_PORT:-29500}}\" --max-restarts=0 \"$@\""
    )
}

/// `torchrun` starts Python by itself; anything else is started as it is.
fn for_torchrun(mut words: Vec<String>) -> Vec<String> {
    let program = words.first().map(|word| word.rsplit('/').next().unwrap_or(word).to_owned());
    match program.as_deref() {
        Some("python" | "python3") => drop(words.remove(0)),
        Some(script) if script.ends_with(".py") => {}
        _ => words.insert(0, "--no-python".into()),
    }
    words
}

/// Open MPI reaches the other workers as it would reach other machines, only that what takes it there is `berth rsh`. When it is
/// done it leaves its code for them.
fn mpirun(gang: &Gang) -> String {
    let hosts: Vec<String> = (0..gang.now).map(|rank| format!("worker-{rank}:1")).collect();
    format!(
        "mpirun --allow-run-as-root --mca plm_rsh_agent \"$BERTH_RSH\" --mca plm_rsh_no_tree_spawn 1 --mca btl_tcp_if_include lo \
         --mca oob_tcp_if_include lo --mca btl self,tcp --mca pml ob1 --bind-to none --host {} -np {} \"$@\"; code=$?; \
         echo $code > \"$BERTH_CHECKPOINT_DIR/.mpi-$BERTH_GANG\"; exit $code",
        hosts.join(","),
        gang.now
    )
}

/// The other workers are there for what `mpirun` starts in them, and end as it does.
const WAIT_FOR_FIRST: &str = "file=\"$BERTH_CHECKPOINT_DIR/.mpi-$BERTH_GANG\"; trap 'exit 143' TERM; \
     until [ -s \"$file\" ]; do sleep 0.2 & wait $!; done; exit \"$(cat \"$file\")\"";

#[cfg(test)]
mod tests {
    use super::*;

    fn words(text: &str) -> Vec<String> {
        text.split(' ').map(str::to_owned).collect()
    }

    fn gang(rank: u32) -> Gang {
        Gang { rank, min: 2, max: 4, now: 3, devices: 8 }
    }

    #[test]
    fn torchrun_has_a_process_for_each_gpu_and_room_for_who_joins_later() {
        let started = start(Framework::Torchrun, &gang(1), &words("python3 train.py"), &words("--lr 1"));
        assert_eq!(started.command, ["/bin/sh"]);
        assert!(started.args[1].contains("--nnodes=2:4 --nproc-per-node=8"), "{:?}", started.args);
        assert_eq!(started.args[2..], ["torchrun", "train.py", "--lr", "1"]);
        let started = start(Framework::Torchrun, &gang(1), &words("./train"), &[]);
        assert_eq!(started.args[2..], ["torchrun", "--no-python", "./train"]);
        let none = start(Framework::None, &gang(1), &words("a b"), &words("c"));
        assert_eq!((none.command, none.args), (words("a b"), words("c")));
    }

    #[test]
    fn mpirun_runs_in_the_first_worker_and_the_others_wait_for_it() {
        let first = start(Framework::Mpi, &gang(0), &words("train"), &words("x"));
        assert!(
            first.args[1].contains("--host worker-0:1,worker-1:1,worker-2:1 -np 3 \"$@\""),
            "{:?}",
            first.args
        );
        assert_eq!(first.args[2..], ["mpirun", "train", "x"]);
        let other = start(Framework::Mpi, &gang(1), &words("train"), &words("x"));
        assert!(!other.args.contains(&"train".to_owned()), "{:?}", other.args);
    }
}
