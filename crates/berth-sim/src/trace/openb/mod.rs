//! The openb trace: hosts, what pods ask for, and the stream of arrivals the FGD experiment makes of a pod list.

pub mod baselines;
pub mod engine;
pub mod fgd;
pub mod proto;
pub mod replay;
pub mod report;

use super::table::Table;
use crate::random::SplitMix64;
use anyhow::{Context, bail};
use std::{collections::BTreeMap, path::Path};

/// The pod lists of the FGD paper, in the order of its tables.
pub const LISTS: [&str; 17] = [
    "default",
    "cpu050",
    "cpu100",
    "cpu200",
    "cpu250",
    "gpushare40",
    "gpushare60",
    "gpushare80",
    "gpushare100",
    "gpuspec10",
    "gpuspec20",
    "gpuspec25",
    "gpuspec33",
    "multigpu20",
    "multigpu30",
    "multigpu40",
    "multigpu50",
];

/// One whole device, in the trace's thousandths.
pub const WHOLE: u32 = 1000;

/// No host of the trace has more devices.
pub const DEVICES_MAX: usize = 8;

/// A host of the trace.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Host {
    /// All of its CPU, in thousandths of a core.
    pub cpu_milli: u32,
    /// All of its memory.
    pub memory_mib: u32,
    /// How many devices.
    pub gpus: u8,
    /// The model of all of them, as an index into [`Hosts::models`].
    pub model: u8,
}

/// All hosts of the trace.
#[derive(Debug, Clone, Default)]
pub struct Hosts {
    /// The hosts, in the order of the file.
    pub hosts: Vec<Host>,
    /// Names of GPU models.
    pub models: Vec<String>,
}

impl Hosts {
    /// Reads `openb_node_list_gpu_node.csv`.
    pub fn load(traces: &Path) -> anyhow::Result<Self> {
        Self::parse(&Table::open(&traces.join("openb/openb_node_list_gpu_node.csv"))?)
    }

    fn parse(table: &Table) -> anyhow::Result<Self> {
        let mut all = Self::default();
        for row in table.rows(&["cpu_milli", "memory_mib", "gpu", "model"])? {
            let gpus: u8 = row.value(2, "a number of GPUs")?;
            if usize::from(gpus) > DEVICES_MAX {
                return Err(row.wrong(2, "at most 8 GPUs"));
            }
            let name = row.text(3);
            let model = all.models.iter().position(|known| known == name);
            let model = model.unwrap_or_else(|| {
                all.models.push(name.into());
                all.models.len() - 1
            });
            if model >= 32 {
                return Err(row.wrong(3, "at most 32 different models"));
            }
            all.hosts.push(Host {
                cpu_milli: row.value(0, "thousandths of a core")?,
                memory_mib: row.value(1, "mebibytes")?,
                gpus,
                model: model as u8,
            });
        }
        Ok(all)
    }

    /// All devices, in thousandths.
    pub fn gpu_milli(&self) -> u64 {
        self.hosts.iter().map(|host| u64::from(host.gpus) * u64::from(WHOLE)).sum()
    }
}

/// What a pod asks for.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct Shape {
    /// CPU, in thousandths of a core.
    pub cpu_milli: u32,
    /// Memory.
    pub memory_mib: u32,
    /// How many devices.
    pub gpus: u8,
    /// Thousandths of each device.
    pub share_milli: u32,
    /// Bits of the accepted models; no bit accepts every model.
    pub models: u32,
}

impl Shape {
    /// All it asks of devices, in thousandths.
    pub fn gpu_milli(&self) -> u64 {
        u64::from(self.gpus) * u64::from(self.share_milli)
    }

    /// Whether it may run on this model.
    pub fn accepts(&self, model: u8) -> bool {
        self.models == 0 || self.models & (1 << model) != 0
    }
}

/// One pod list: the distinct shapes, and the shape of each pod in the order of the pods' names.
#[derive(Debug, Clone, Default)]
pub struct PodList {
    /// Distinct shapes, in rising order.
    pub shapes: Vec<Shape>,
    /// Indexes into `shapes`.
    pub pods: Vec<usize>,
}

impl PodList {
    /// Reads `openb_pod_list_<name>.csv`.
    pub fn load(traces: &Path, name: &str, models: &[String]) -> anyhow::Result<Self> {
        if !LISTS.contains(&name) {
            bail!("there is no pod list `{name}`; known lists: {}", LISTS.join(", "));
        }
        let path = traces.join(format!("openb/openb_pod_list_{name}.csv"));
        Self::parse(&Table::open(&path)?, models).with_context(|| format!("pod list {name}"))
    }

    fn parse(table: &Table, models: &[String]) -> anyhow::Result<Self> {
        // The multigpu lists name no models and have no such column.
        let columns = ["name", "cpu_milli", "memory_mib", "num_gpu", "gpu_milli", "gpu_spec?"];
        let mut named = Vec::new();
        for row in table.rows(&columns)? {
            let mut bits = 0;
            for model in row.text(5).split('|').filter(|model| !model.is_empty()) {
                match models.iter().position(|known| known == model) {
                    Some(index) => bits |= 1 << index,
                    None => return Err(row.wrong(5, "models of the host list")),
                }
            }
            let gpus: u8 = row.value(3, "a number of GPUs")?;
            let share_milli: u32 = row.value(4, "thousandths of a GPU")?;
            if share_milli > WHOLE || (gpus > 0 && share_milli == 0) {
                return Err(row.wrong(4, "1 to 1000 thousandths of a GPU"));
            }
            let shape = Shape {
                cpu_milli: row.value(1, "thousandths of a core")?,
                memory_mib: row.value(2, "mebibytes")?,
                gpus,
                share_milli: if gpus == 0 { 0 } else { share_milli },
                models: if gpus == 0 { 0 } else { bits },
            };
            named.push((row.text(0), shape));
        }
        named.sort();
        let mut index: BTreeMap<Shape, usize> = named.iter().map(|(_, shape)| (*shape, 0)).collect();
        index.values_mut().enumerate().for_each(|(position, value)| *value = position);
        Ok(Self {
            shapes: index.keys().copied().collect(),
            pods: named.iter().map(|(_, shape)| index[shape]).collect(),
        })
    }

    /// The arrivals of one run: all pods in random order, then tuned to `target_milli` of GPU demand by repeating
    /// random pods of the list, or by dropping random arrivals when the list itself asks for more.
    pub fn arrivals(&self, target_milli: u64, random: &mut SplitMix64) -> Vec<usize> {
        let mut arrivals = self.pods.clone();
        shuffle(&mut arrivals, random);
        let demand = |shape: usize| self.shapes[shape].gpu_milli();
        let mut asked: u64 = arrivals.iter().map(|&shape| demand(shape)).sum();
        if asked == 0 {
            return arrivals;
        }
        while asked < target_milli {
            let shape = self.pods[random.below(self.pods.len() as u64) as usize];
            asked += demand(shape);
            arrivals.push(shape);
        }
        while asked > target_milli {
            let position = random.below(arrivals.len() as u64) as usize;
            if asked - demand(arrivals[position]) < target_milli {
                break;
            }
            asked -= demand(arrivals.remove(position));
        }
        arrivals
    }
}

/// Puts `items` in random order (Fisher and Yates).
pub fn shuffle<T>(items: &mut [T], random: &mut SplitMix64) {
    for last in (1..items.len()).rev() {
        items.swap(last, random.below(last as u64 + 1) as usize);
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const HOSTS: &str = "sn,cpu_milli,memory_mib,gpu,model\na,64000,1024,2,T4\nb,96000,2048,8,G2\n";
    const PODS: &str = "name,cpu_milli,memory_mib,num_gpu,gpu_milli,gpu_spec\n\
        p1,1000,10,1,500,G2|T4\np0,2000,10,0,0,\np2,1000,10,2,1000,\n";

    fn parsed() -> (Hosts, PodList) {
        let hosts = Hosts::parse(&Table::from_text("hosts.csv", HOSTS)).unwrap();
        let list = PodList::parse(&Table::from_text("pods.csv", PODS), &hosts.models).unwrap();
        (hosts, list)
    }

    #[test]
    fn pods_are_in_the_order_of_their_names() {
        let (hosts, list) = parsed();
        assert_eq!(hosts.gpu_milli(), 10_000);
        let asked: Vec<u64> = list.pods.iter().map(|&pod| list.shapes[pod].gpu_milli()).collect();
        assert_eq!(asked, [0, 500, 2000]);
        assert!(list.shapes[list.pods[1]].accepts(0) && list.shapes[list.pods[1]].accepts(1));
    }

    #[test]
    fn arrivals_are_tuned_to_the_target_from_below_and_from_above() {
        let (_, list) = parsed();
        let demand =
            |arrivals: &[usize]| -> u64 { arrivals.iter().map(|&pod| list.shapes[pod].gpu_milli()).sum() };
        let more = list.arrivals(10_000, &mut SplitMix64::new(1));
        assert!((10_000..12_000).contains(&demand(&more)));
        let fewer = list.arrivals(2_000, &mut SplitMix64::new(1));
        assert!((2_000..=2_500).contains(&demand(&fewer)));
    }

    #[test]
    fn a_model_no_host_has_is_an_error() {
        let (hosts, _) = parsed();
        let table = Table::from_text("pods.csv", PODS.replace("G2|T4", "H100"));
        let error = PodList::parse(&table, &hosts.models).unwrap_err();
        assert_eq!(
            error.to_string(),
            "pods.csv:2: expected models of the host list in column `gpu_spec`, found `H100`"
        );
    }
}
