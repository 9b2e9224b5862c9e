//! What this machine has for running tasks, looked at once and without an agent.

use crate::{Devices, cgroup, devices, oci};

/// What a machine has.
#[derive(Debug)]
pub struct Probe {
    /// GPUs as the driver's library reports them.
    pub devices: Devices,
    /// Limits that would not hold, as a sentence; none when control groups can be made with all of them.
    pub cgroups: Option<String>,
    /// The program that runs containers from archives.
    pub runc: Option<String>,
    /// Addresses at which a container engine may answer, best first.
    pub engines: Vec<String>,
}

/// Looks at this machine.
pub fn probe() -> Probe {
    #[cfg(feature = "docker")]
    let engines = crate::engine::addresses(None);
    #[cfg(not(feature = "docker"))]
    let engines = Vec::new();
    Probe {
        devices: devices::look(&devices::vendors()),
        cgroups: cgroup::detect(&format!("berth-doctor-{}", std::process::id())).note,
        runc: oci::runtime(),
        engines,
    }
}
