//! Removes what is no longer needed, away from the agent's thread.

use crate::{
    folder::{Folder, names},
    log::{keep_logs, trim as trim_logs},
    task_folder::TaskFolder,
};
use berth_types::{Bytes, WorkloadId};
use std::{
    fs,
    path::PathBuf,
    sync::{
        Arc,
        atomic::{AtomicU32, Ordering::Relaxed},
    },
};

const TRIM_EVERY: u32 = 32;

/// Removes the folders of a workload, and keeps its logs.
pub(crate) fn forget(folder: &Arc<Folder>, workload: WorkloadId, kept_logs_max: Bytes) {
    let folder = Arc::clone(folder);
    std::thread::spawn(move || {
        let (tasks, kept) = (folder.workload_tasks(workload), folder.kept_logs(workload));
        for name in names(&tasks) {
            if let Err(error) = keep_logs(&tasks.join(&name), &kept.join(&name)) {
                eprintln!("berth: keeping logs of {workload}: {error}");
            }
        }
        let _ = fs::remove_dir_all(tasks);
        let _ = fs::remove_dir_all(folder.workload_work(workload));
        trim_now(&folder, kept_logs_max);
    });
}

/// Holds the logs of ended tasks within their bound.
pub(crate) fn trim(folder: &Arc<Folder>, kept_logs_max: Bytes) {
    static ENDED: AtomicU32 = AtomicU32::new(0);
    // Every folder is looked at, so not at every end: the bound is passed by the logs of a few tasks at most.
    if !ENDED.fetch_add(1, Relaxed).is_multiple_of(TRIM_EVERY) {
        return;
    }
    let folder = Arc::clone(folder);
    std::thread::spawn(move || trim_now(&folder, kept_logs_max));
}

fn trim_now(folder: &Folder, kept_logs_max: Bytes) {
    let ended = folder.tasks().into_iter().map(|id| folder.task(id)).filter(|task| task.ended().is_some());
    let mut folders: Vec<PathBuf> = ended.map(|task: TaskFolder| task.path().to_owned()).collect();
    let kept = folder.root().join("logs");
    for workload in names(&kept) {
        folders.extend(names(&kept.join(&workload)).into_iter().map(|task| kept.join(&workload).join(task)));
    }
    trim_logs(&folders, kept_logs_max.0);
}
