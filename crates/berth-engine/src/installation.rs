//! What a pool is made of: nodes, departments and projects, and how they change.

use crate::{
    node::NodeSlot,
    order::Heads,
    pool::{Organisation, Pool, intern_model},
    queue::ProjectQueue,
    retry::Retries,
    tree::{Sign, Tree},
};
use berth_types::{GpuRequest, Node, NodeId, Phase};

impl Pool {
    /// A node came or changed. What is placed on it stays.
    pub(crate) fn set_node(&mut self, node: &Node) {
        let slot = match self.node_slot(node.id) {
            Some(slot) => slot,
            None => {
                // Slots are not used again, so that an index never confuses two nodes.
                let slot = self.nodes.len() as u32;
                self.nodes.push(None);
                self.node_slots.insert(node.id, slot);
                slot
            }
        };
        for device in &node.devices {
            intern_model(&mut self.models, &device.model);
        }
        let mut fresh = NodeSlot::new(node);
        if let Some(known) = self.nodes[slot as usize].take() {
            self.count_capacity(&known, Sign::Minus);
            fresh.version = known.version + 1;
            fresh.takeable_version = known.takeable_version + 1;
            // A node changes size only while nothing is placed on it, so what is placed fits as it did.
            if known.devices == fresh.devices && known.cpu == fresh.cpu && known.memory == fresh.memory {
                fresh.keep_places_of(known);
            }
        }
        self.count_capacity(&fresh, Sign::Plus);
        self.nodes[slot as usize] = Some(fresh);
        self.on_node_set(slot);
    }

    /// A node went; nothing is placed on it.
    pub(crate) fn remove_node(&mut self, id: NodeId) {
        let Some(slot) = self.node_slots.remove(&id) else { return };
        if let Some(known) = self.nodes[slot as usize].clone() {
            self.count_capacity(&known, Sign::Minus);
        }
        self.nodes[slot as usize] = None;
        self.on_node_set(slot);
    }

    /// Reservations that name a node which goes or changes size are gone with it.
    pub(crate) fn drop_reservations_on(&mut self, id: NodeId) {
        let named: Vec<u32> = self
            .reservations
            .iter()
            .map(|(_, _, slot)| *slot)
            .filter(|slot| self.entry(*slot).workload.reserved_on(id))
            .collect();
        for slot in named {
            self.unindex(slot);
            let entry = self.entries[slot as usize].as_mut().expect("a slot in use");
            entry.workload.phase = Phase::Queued { reservation: None };
            self.index(slot);
        }
    }

    fn count_capacity(&mut self, node: &NodeSlot, sign: Sign) {
        self.capacity = sign.apply(self.capacity, node.capacity());
        if node.ready {
            self.free_gpus = sign.apply(self.free_gpus, node.decided.gpus());
        }
    }

    fn on_node_set(&mut self, slot: u32) {
        for (shape, fit) in &mut self.shapes {
            fit.on_node(shape, &self.nodes, slot);
            if matches!(shape.request.gpu, GpuRequest::Memory { .. }) {
                fit.settle_charges(shape, &self.nodes);
            }
        }
        for ((shape, _), fits) in self.shapes.iter().zip(&mut self.taking_fits) {
            for fit in fits.iter_mut().flatten() {
                fit.on_node(shape, &self.nodes, slot);
            }
        }
        for class in &mut self.classes {
            let fit = &self.shapes[class.shape as usize].1;
            class.asked = fit.charge * u64::from(class.min);
            class.possible = fit.most_when_empty() >= u64::from(class.min);
        }
        self.mix.on_nodes_changed();
        self.log.push(slot, self.nodes.len());
        self.takeable_log.push(slot, self.nodes.len());
        self.demand_stale = true;
        self.shares_stale = true;
        self.version += 1;
        self.mark_all_heads();
    }

    /// Departments or projects changed.
    pub(crate) fn set_organisation(&mut self, organisation: &Organisation) {
        let models = &mut self.models;
        let mut tree = Tree::new(&self.name, &organisation.departments, &organisation.projects, |model| {
            intern_model(models, model)
        });
        let same = tree.nodes.len() == self.tree.nodes.len()
            && tree
                .nodes
                .iter()
                .zip(&self.tree.nodes)
                .all(|(new, old)| new.account == old.account && new.parent == old.parent);
        if same && !self.project_settings_changed(organisation) {
            for (new, old) in tree.nodes.iter_mut().zip(&mut self.tree.nodes) {
                new.used = std::mem::take(&mut old.used);
                new.non_preemptible = std::mem::take(&mut old.non_preemptible);
                new.extras = old.extras;
            }
            self.tree = tree;
            for position in 0..self.queues.len() as u32 {
                self.refresh_above(position);
            }
        } else {
            let slots: Vec<u32> = (0..self.entries.len() as u32)
                .filter(|slot| self.entries[*slot as usize].is_some())
                .collect();
            for slot in &slots {
                self.unindex(*slot);
            }
            self.queues = vec![ProjectQueue::default(); tree.nodes.len()];
            self.borrowers.clear();
            self.above_stale.clear();
            self.freed_departments.clear();
            self.tree = tree;
            self.load_project_settings(organisation);
            for slot in slots {
                let (project, class) = {
                    let entry = self.entry(slot);
                    let spec = entry.workload.spec.clone();
                    (
                        self.tree.project(spec.project),
                        self.intern_class(&spec, &organisation.projects[&spec.project]),
                    )
                };
                let entry = self.entries[slot as usize].as_mut().expect("was just looked at");
                (entry.project, entry.class) = (project, class);
                self.index(slot);
            }
        }
        // Positions may have gone or be another's.
        self.heads = Heads::default();
        self.retries = Retries::default();
        for class in &mut self.classes {
            (class.fits, class.round) = (false, 0);
        }
        self.shares_stale = true;
        self.version += 1;
        self.mark_all_heads();
    }

    fn project_settings_changed(&self, organisation: &Organisation) -> bool {
        organisation.projects.iter().any(|(id, project)| {
            let position = self.tree.project(*id);
            let queue = &self.queues[position as usize];
            let limits = queue.min_run == project.min_run
                && queue.interactive_time_limit == project.interactive_time_limit
                && queue.time_limit == project.time_limit
                && queue.idle_limit == project.idle_limit;
            !limits || queue.selectors != (project.train_nodes.clone(), project.interactive_nodes.clone())
        })
    }

    pub(crate) fn load_project_settings(&mut self, organisation: &Organisation) {
        for (id, project) in &organisation.projects {
            let queue = &mut self.queues[self.tree.project(*id) as usize];
            queue.min_run = project.min_run;
            queue.interactive_time_limit = project.interactive_time_limit;
            queue.time_limit = project.time_limit;
            queue.idle_limit = project.idle_limit;
            queue.selectors = (project.train_nodes.clone(), project.interactive_nodes.clone());
        }
    }
}
