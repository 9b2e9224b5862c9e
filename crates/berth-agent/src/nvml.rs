//! GPUs of NVIDIA, by the library that comes with their driver. It is looked for at run time: Berth runs without it, too.

use crate::devices::{Gpu, Vendor};
use berth_types::Bytes;
use nvml_wrapper::{Nvml, error::NvmlError};
use std::sync::Mutex;

/// The library, loaded when it is first asked for. A driver that is installed later is found then.
#[derive(Default)]
pub(crate) struct Nvidia {
    library: Mutex<Option<Nvml>>,
}

impl Vendor for Nvidia {
    fn look(&self) -> Result<Vec<Gpu>, String> {
        let mut library =
            self.library.lock().map_err(|_| "an earlier look at the NVIDIA driver failed".to_owned())?;
        if library.is_none() {
            *library = Some(load()?);
        }
        let gpus = library.as_ref().map(all).transpose();
        // A driver that was unloaded or updated needs a new start of the library.
        let gpus = gpus
            .inspect_err(|_| *library = None)
            .map_err(|error| format!("the NVIDIA driver says: {error}"))?;
        Ok(gpus.unwrap_or_default())
    }
}

fn load() -> Result<Nvml, String> {
    // Drivers install the name with a number; the one without comes with the development files only.
    let numbered = Nvml::builder().lib_path("libnvidia-ml.so.1".as_ref()).init();
    numbered.or_else(|_| Nvml::init()).map_err(|error| match error {
        NvmlError::LibloadingError(_) => {
            "no GPU was found: libnvidia-ml.so.1, a part of the NVIDIA driver, is not installed".into()
        }
        NvmlError::DriverNotLoaded => {
            "no GPU was found: the NVIDIA driver is installed and not loaded".to_owned()
        }
        other => format!("no GPU was found: the NVIDIA driver says: {other}"),
    })
}

fn all(library: &Nvml) -> Result<Vec<Gpu>, NvmlError> {
    (0..library.device_count()?).map(|index| one(library, index)).collect()
}

fn one(library: &Nvml, index: u32) -> Result<Gpu, NvmlError> {
    let device = library.device_by_index(index)?;
    let memory = device.memory_info()?;
    let mut processes: Vec<u32> =
        device.running_compute_processes().unwrap_or_default().iter().map(|process| process.pid).collect();
    processes.sort_unstable();
    processes.dedup();
    Ok(Gpu {
        index: index as u8,
        uuid: device.uuid()?,
        minor: device.minor_number().ok(),
        model: device.name()?,
        memory: Bytes(memory.total),
        memory_used: Bytes(memory.used),
        // Not every device tells, a part of a divided one for instance.
        utilisation: device.utilization_rates().ok().map(|rates| rates.gpu.min(100) as u8),
        processes,
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_machine_without_the_library_gives_a_reason() {
        match Nvidia::default().look() {
            Ok(gpus) => assert!(gpus.iter().all(|gpu| gpu.uuid.starts_with("GPU-")), "{gpus:?}"),
            Err(reason) => assert!(reason.contains("NVIDIA driver"), "{reason}"),
        }
    }
}
