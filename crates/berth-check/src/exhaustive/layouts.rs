//! Layouts: every way to put tasks on nodes and devices.

use crate::{
    places::{check_apart, check_topology},
    room::{Room, accepts},
};
use berth_types::{DeviceShare, Node, Place, Request, State, Workload};

/// Every place one task could have in what is free.
pub(super) fn places_of_task(state: &State, room: &Room<'_>, workload: &Workload, rank: u32) -> Vec<Place> {
    let nodes = state.nodes.values().filter(|node| accepts(state, workload, node));
    let places = nodes.flat_map(|node| places_on(node, &workload.spec.request, rank));
    places.filter(|place| room.holds(std::slice::from_ref(place))).collect()
}

/// Every place one task could have on a node on which nothing is.
fn places_on(node: &Node, request: &Request, rank: u32) -> Vec<Place> {
    let wanted = usize::from(request.gpu.devices());
    let shares: Vec<DeviceShare> = node
        .devices
        .iter()
        .enumerate()
        .filter(|(_, device)| request.accepts_model(&device.model))
        .filter_map(|(at, device)| {
            let device_index = u8::try_from(at).ok()?;
            Some(DeviceShare { device: device_index, share: request.gpu.share_on(device.memory)? })
        })
        .collect();
    let sets = (0_usize..1 << shares.len()).filter(|set| set.count_ones() as usize == wanted);
    sets.map(|set| Place {
        rank,
        node: node.id,
        devices: shares
            .iter()
            .enumerate()
            .filter(|(at, _)| set >> at & 1 == 1)
            .map(|(_, own)| *own)
            .collect(),
        cpu: request.cpu,
        memory: request.memory,
    })
    .collect()
}

/// Asks `accept` of every layout of the minimum of a workload in what is free, until it says yes.
pub(super) fn any_layout(
    state: &State,
    room: &Room<'_>,
    workload: &Workload,
    accept: &mut dyn FnMut(&[Place]) -> bool,
) -> bool {
    let mut room = room.clone();
    lay_out(state, &mut room, workload, &mut Vec::new(), accept)
}

fn lay_out(
    state: &State,
    room: &mut Room<'_>,
    workload: &Workload,
    places: &mut Vec<Place>,
    accept: &mut dyn FnMut(&[Place]) -> bool,
) -> bool {
    let rank = places.len() as u32;
    if rank == workload.spec.tasks.min() {
        return check_topology(state, workload, places).is_empty()
            && check_apart(workload, places.iter()).is_empty()
            && accept(places);
    }
    for place in places_of_task(state, room, workload, rank) {
        // Tasks are alike, so only layouts with nodes in rising order are looked at.
        if places.last().is_some_and(|last| (last.node, &last.devices) > (place.node, &place.devices)) {
            continue;
        }
        room.take(&place);
        places.push(place);
        let accepted = lay_out(state, room, workload, places, accept);
        let place = places.pop().expect("was just pushed");
        room.give(&place);
        if accepted {
            return true;
        }
    }
    false
}
