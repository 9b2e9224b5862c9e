//! How many tasks fit, and what they are charged.

use super::build::*;
use crate::{
    room::{Room, View},
    share::asked,
};
use berth_types::*;
use std::num::{NonZeroU8, NonZeroU64};

fn asking(gpu: GpuRequest) -> Workload {
    with(elastic(train(9, 1, 1), 100, 100), |own| own.spec.request.gpu = gpu)
}

fn fraction(millionths: u32, devices: u8) -> GpuRequest {
    GpuRequest::Fraction {
        share: Share::from_millionths(millionths).unwrap(),
        devices: NonZeroU8::new(devices).unwrap(),
    }
}

fn memory(gib: u64) -> GpuRequest {
    GpuRequest::Memory { bytes: NonZeroU64::new(Bytes::gib(gib).0).unwrap(), devices: NonZeroU8::MIN }
}

fn tasks(state: &State, workload: &Workload) -> u64 {
    Room::of(state, View::Decided).tasks(workload)
}

#[test]
fn whole_devices_need_untouched_ones() {
    let all =
        state([node(1, 5), node(2, 3)], [project(1, quota(8))], [run(train(1, 1, 1), [place(0, 1, [0])])]);
    let pairs = asking(GpuRequest::Whole(NonZeroU8::new(2).unwrap()));
    assert_eq!(tasks(&all, &pairs), 3);
    let together = with(pairs, |own| own.spec.topology.required = Some(TopologyLevel::Node));
    assert_eq!(tasks(&all, &together), 2);
    let apart = with(asking(GpuRequest::Whole(NonZeroU8::MIN)), |own| own.spec.spread = Spread::Apart);
    assert_eq!(tasks(&all, &apart), 2);
}

#[test]
fn fractions_of_several_devices_need_distinct_ones() {
    let all = state([node(1, 3)], [project(1, quota(8))], []);
    assert_eq!(tasks(&all, &asking(fraction(400_000, 1))), 6);
    // Six slots on three devices: three tasks of two devices each, two of three.
    assert_eq!(tasks(&all, &asking(fraction(400_000, 2))), 3);
    assert_eq!(tasks(&all, &asking(fraction(400_000, 3))), 2);
    assert_eq!(tasks(&all, &asking(fraction(600_000, 2))), 1);
    assert_eq!(tasks(&all, &asking(fraction(400_000, 4))), 0);
}

#[test]
fn gpu_memory_is_charged_on_the_smallest_device_it_may_use() {
    let mut large = node(2, 1);
    large.devices[0].memory = Bytes::gib(64);
    let mut tiny = node(3, 1);
    tiny.devices[0].memory = Bytes::gib(8);
    let all = state([node(1, 1), large, tiny], [project(1, quota(8))], []);
    let sixteen = asking(memory(16));
    assert_eq!(tasks(&all, &sixteen), 6);
    assert_eq!(asked(&all, &sixteen), Gpus(500_000).times(100));
    let mut without_small = all;
    without_small.nodes.remove(&NodeId(1));
    assert_eq!(asked(&without_small, &sixteen), Gpus(250_000).times(100));
}

#[test]
fn cpu_and_memory_bound_what_fits() {
    let all = state([node(1, 8)], [project(1, quota(8))], []);
    let thirsty = with(asking(GpuRequest::None), |own| own.spec.request.cpu = Cpu::cores(40));
    assert_eq!(tasks(&all, &thirsty), 2);
    let large = with(asking(GpuRequest::None), |own| own.spec.request.memory = Bytes::gib(300));
    assert_eq!(tasks(&all, &large), 3);
    assert_eq!(tasks(&all, &asking(GpuRequest::None)), u64::from(Tasks::MAX));
}
