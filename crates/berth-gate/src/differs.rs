//! What a cluster does in another way than one machine, and what it does not do for Workloads at all.

use crate::mpi;
use berth_api::{Framework, Problem, Restart, WorkloadRequest};
use berth_kube::{api, names};
use berth_types::Gpus;

/// Refuses what would be accepted and not done, and names the way to it.
pub(crate) fn check(request: &WorkloadRequest) -> Result<(), Problem> {
    if request.completions.is_some() && request.min_workers.is_some() {
        let text =
            "on a cluster, completions are worked at by as many workers as --parallelism says, no fewer";
        return Err(Problem::invalid("min_workers", text).hint("leave out --min-workers"));
    }
    if request.framework == Framework::Mpi
        && request.min_workers.is_some_and(|min| Some(min) != request.workers)
    {
        let text = "mpirun starts as many processes as there are, and none joins it later";
        return Err(Problem::invalid("min_workers", text).hint("leave out --min-workers"));
    }
    Ok(())
}

/// The command and the arguments with which every worker is started.
pub(crate) fn started(request: &WorkloadRequest) -> (Vec<String>, Vec<String>) {
    let (command, args) = (&request.command, &request.args);
    match request.framework {
        Framework::Torchrun => {
            let max = request.workers.unwrap_or(1);
            let min = request.min_workers.unwrap_or(max);
            berth_server::started_by_torchrun((min, max), devices(request), command, args)
        }
        Framework::Mpi => mpi::started(command, args),
        Framework::None => (command.clone(), args.clone()),
    }
}

/// How the framework is called that starts a workload, if one does.
pub(crate) fn framework_name(framework: Framework) -> Option<&'static str> {
    match framework {
        Framework::Torchrun => Some("torchrun"),
        Framework::Mpi => Some("mpi"),
        Framework::None => None,
    }
}

/// Whether a workload was asked for as a notebook.
pub(crate) fn is_notebook(workload: &api::Workload) -> bool {
    let noted = workload.metadata.annotations.as_ref().and_then(|noted| noted.get(names::NOTEBOOK));
    noted.is_some_and(|noted| noted == "true")
}

/// The framework that starts a workload.
pub(crate) fn framework(workload: &api::Workload) -> Framework {
    let noted = workload.metadata.annotations.as_ref().and_then(|noted| noted.get(names::FRAMEWORK));
    let is_noted = |framework: &Framework| framework_name(*framework) == noted.map(String::as_str);
    [Framework::Torchrun, Framework::Mpi].into_iter().find(is_noted).unwrap_or_default()
}

/// The command and the arguments that somebody asked for, out of those with which every worker is started.
pub(crate) fn asked(workload: &api::Workload) -> (Vec<String>, Vec<String>) {
    let (command, args) = (&workload.spec.command, &workload.spec.args);
    let is_ours = framework(workload) != Framework::None && *command == ["/bin/sh"];
    match args.as_slice() {
        [flag, _line, _name, words @ ..] if is_ours && flag == "-c" => (words.to_vec(), Vec::new()),
        _ => (command.clone(), args.clone()),
    }
}

/// Devices of each worker.
fn devices(request: &WorkloadRequest) -> usize {
    let whole = request.gpus.map_or(0, |gpus| gpus.0.0 / Gpus::SCALE);
    let devices = request.gpu_devices.map_or(whole, u64::from);
    usize::try_from(devices).unwrap_or(usize::MAX)
}

/// Who starts again, as Workloads spell it.
pub(crate) fn restart(request: &WorkloadRequest) -> Option<&'static str> {
    // How completions are started again follows from what they are.
    let restart = request.restart.filter(|_| request.completions.is_none());
    restart.map(|restart| match restart {
        Restart::Gang => "gang",
        Restart::Worker => "worker",
    })
}

#[cfg(test)]
mod tests {
    use super::*;
    use berth_api::GpuAmount;

    #[test]
    fn what_a_workload_of_a_cluster_cannot_do_is_refused_with_the_way_to_it() {
        let elastic =
            WorkloadRequest { completions: Some(3), min_workers: Some(1), ..WorkloadRequest::default() };
        let problem = check(&elastic).expect_err("it is refused");
        assert!(problem.hint.is_some_and(|hint| hint.contains("--min-workers")));
        check(&WorkloadRequest { completions: Some(3), ..WorkloadRequest::default() })
            .expect("it is accepted");
        let mpi = WorkloadRequest {
            framework: Framework::Mpi,
            workers: Some(3),
            min_workers: Some(2),
            ..WorkloadRequest::default()
        };
        check(&mpi).expect_err("it is refused");
        check(&WorkloadRequest { min_workers: None, ..mpi }).expect("it is accepted");
        check(&WorkloadRequest::default()).expect("it is accepted");
    }

    #[test]
    fn torchrun_starts_a_process_for_each_gpu_of_a_worker() {
        let words = |text: &str| text.split(' ').map(str::to_owned).collect::<Vec<_>>();
        let request = WorkloadRequest {
            framework: Framework::Torchrun,
            command: words("python train.py"),
            args: words("--lr 1"),
            workers: Some(4),
            min_workers: Some(2),
            gpus: Some(GpuAmount(Gpus::whole(8))),
            ..WorkloadRequest::default()
        };
        let (command, args) = started(&request);
        assert_eq!(command, ["/bin/sh"]);
        assert!(args[1].contains("torchrun --nnodes=2:4 --nproc-per-node=8"), "{args:?}");
        assert_eq!(args[2..], ["torchrun", "train.py", "--lr", "1"]);
        assert_eq!(read_back(&request), (Framework::Torchrun, (words("train.py --lr 1"), Vec::new())));
        let mpi = WorkloadRequest { framework: Framework::Mpi, ..request.clone() };
        assert_eq!(read_back(&mpi), (Framework::Mpi, (words("python train.py --lr 1"), Vec::new())));
        let plain = WorkloadRequest { framework: Framework::None, ..request };
        assert_eq!(read_back(&plain), (Framework::None, (words("python train.py"), words("--lr 1"))));
        assert_eq!(started(&plain), (words("python train.py"), words("--lr 1")));
    }
    /// What is shown of a workload that was asked for so.
    fn read_back(request: &WorkloadRequest) -> (Framework, (Vec<String>, Vec<String>)) {
        let (command, args) = started(request);
        let mut workload =
            api::Workload::new("train", api::WorkloadSpec { command, args, ..Default::default() });
        let noted =
            framework_name(request.framework).map(|name| (names::FRAMEWORK.to_owned(), name.to_owned()));
        workload.metadata.annotations = Some(noted.into_iter().collect());
        (framework(&workload), asked(&workload))
    }
}
