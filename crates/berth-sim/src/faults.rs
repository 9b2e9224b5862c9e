//! What goes wrong: lost nodes, late and lost news, refused starts, restarts of the control loop.

use crate::{verify::one, world::World};
use berth_engine::Engine;
use berth_types::{Change, Node, NodeCondition, NodeId, Phase, Span, TaskOutcome, Time, WorkloadId};
use std::str::FromStr;

/// How often and how badly things go wrong. The default is a cluster in which nothing does.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Faults {
    /// A node is lost about this often.
    pub node_loss_every: Option<Span>,
    /// A lost node comes back after this long.
    pub node_back_after: Span,
    /// Chances in a hundred that news of a task arrives late.
    pub late: u8,
    /// How late at most.
    pub late_by: Span,
    /// Chances in a hundred that a confirmation is lost.
    pub lost: u8,
    /// A lost confirmation is sent again after this long.
    pub resend_after: Span,
    /// Chances in a hundred that a start is refused.
    pub refused: u8,
    /// The control loop is restarted about this often.
    pub restart_every: Option<Span>,
}

impl Default for Faults {
    fn default() -> Self {
        Self {
            node_loss_every: None,
            node_back_after: Span::secs(300),
            late: 0,
            late_by: Span::secs(60),
            lost: 0,
            resend_after: Span::secs(30),
            refused: 0,
            restart_every: None,
        }
    }
}

impl Faults {
    /// Some of everything.
    pub fn all() -> Self {
        Self {
            node_loss_every: Some(Span::secs(600)),
            late: 20,
            lost: 10,
            refused: 5,
            restart_every: Some(Span::secs(300)),
            ..Self::default()
        }
    }
}

impl FromStr for Faults {
    type Err = String;

    /// Reads `all`, or settings such as `node-loss=10m,late=20%,lost=10%`.
    fn from_str(text: &str) -> Result<Self, String> {
        let mut faults = Self::default();
        for part in text.split(',') {
            if part == "all" {
                faults = Self::all();
                continue;
            }
            let (key, value) = part.split_once('=').ok_or_else(|| {
                format!("`{part}` is not `all` and has no value; write for example `late=20%`")
            })?;
            let span = || {
                value.parse::<Span>().map_err(|error| error.to_string()).and_then(|span| match span {
                    Span::ZERO => Err(format!("`{key}` must be longer than nothing")),
                    span => Ok(span),
                })
            };
            let percent = || {
                let number = value.strip_suffix('%').unwrap_or(value);
                match number.parse::<u8>() {
                    // Above that a confirmation would hardly ever arrive.
                    Ok(number) if number <= 90 => Ok(number),
                    _ => Err(format!("`{value}` is not a percentage from 0% to 90%")),
                }
            };
            match key {
                "node-loss" => faults.node_loss_every = Some(span()?),
                "node-back" => faults.node_back_after = span()?,
                "late" => faults.late = percent()?,
                "late-by" => faults.late_by = span()?,
                "lost" => faults.lost = percent()?,
                "resend" => faults.resend_after = span()?,
                "refused" => faults.refused = percent()?,
                "restart" => faults.restart_every = Some(span()?),
                _ => {
                    return Err(format!(
                        "unknown fault `{key}`; expected all, node-loss, node-back, late, late-by, lost, resend, \
                         refused or restart"
                    ));
                }
            }
        }
        Ok(faults)
    }
}

/// A fault that is due at some instant.
#[derive(Debug, Clone, Copy)]
pub(crate) enum Fault {
    LoseNode,
    Restart,
}

/// A node that is gone: as it was, so that it can come back, and whether everybody has let go of it.
#[derive(Debug, Clone)]
pub(crate) struct LostNode {
    pub(crate) node: Node,
    removed: bool,
}

impl World {
    pub(crate) fn schedule_faults(&mut self) {
        self.schedule_fault(self.options.faults.node_loss_every, Fault::LoseNode);
        self.schedule_fault(self.options.faults.restart_every, Fault::Restart);
    }

    /// The distance to the next fault is anything up to twice the mean.
    fn schedule_fault(&mut self, every: Option<Span>, fault: Fault) {
        if let Some(every) = every {
            let distance = Span(1 + self.random.below(every.0.saturating_mul(2)));
            self.push_fault(self.now + distance, fault);
        }
    }

    pub(crate) fn on_fault(&mut self, fault: Fault) {
        match fault {
            Fault::LoseNode => {
                let present: Vec<NodeId> =
                    self.state.nodes.keys().copied().filter(|id| !self.lost.contains_key(id)).collect();
                if !present.is_empty() {
                    let chosen = present[self.random.below(present.len() as u64) as usize];
                    self.lose_node(chosen);
                    let back = self.now + self.options.faults.node_back_after;
                    self.push(back, crate::world::Event::NodeBack(chosen));
                }
                self.schedule_fault(self.options.faults.node_loss_every, fault);
            }
            Fault::Restart => {
                // What just happened is answered first: a restart must find nothing left to decide.
                self.settle();
                self.restart();
                self.schedule_fault(self.options.faults.restart_every, fault);
            }
        }
    }

    /// A node goes with everything on it, and places that were decided but not started are withdrawn. It is only closed
    /// at first, because a gang that lost a task there can still be leaving; it is removed when nothing names it. The
    /// caller settles.
    pub(crate) fn lose_node(&mut self, id: NodeId) {
        let Some(node) = self.state.nodes.get(&id).cloned() else {
            return;
        };
        if self.lost.contains_key(&id) {
            return;
        }
        let closed = Node { condition: NodeCondition::Cordoned, ..node.clone() };
        self.lost.insert(id, LostNode { node, removed: false });
        self.must_take(Change::NodeSet(closed));
        let gone: Vec<(WorkloadId, u32)> = self
            .state
            .workloads
            .values()
            .flat_map(|workload| {
                let ranks = workload.occupied().filter(|place| place.node == id);
                ranks.map(|place| (workload.id, place.rank))
            })
            .collect();
        for (workload, rank) in gone {
            let (at, outcome) = (self.now, TaskOutcome::Lost);
            self.must_take(Change::Ended { workload, rank, outcome, at });
        }
        let held: Vec<WorkloadId> = self
            .state
            .workloads
            .values()
            .filter(|workload| matches!(workload.phase, Phase::Held { .. }))
            .filter(|workload| workload.places().any(|place| place.node == id))
            .map(|workload| workload.id)
            .collect();
        for workload in held {
            self.must_take(Change::Refused { workload, at: self.now });
        }
    }

    /// A lost node comes back as it was. The caller settles.
    pub(crate) fn restore_node(&mut self, id: NodeId) {
        if let Some(lost) = self.lost.remove(&id) {
            self.must_take(Change::NodeSet(lost.node));
        }
    }

    /// A node goes, and the engine answers.
    pub fn lose(&mut self, node: NodeId) {
        self.lose_node(node);
        self.settle();
    }

    /// A lost node comes back, and the engine answers.
    pub fn restore(&mut self, node: NodeId) {
        self.restore_node(node);
        self.settle();
    }

    /// Opens or closes a node for new work; a lost node comes back that way.
    pub(crate) fn set_condition(&mut self, id: NodeId, condition: NodeCondition) {
        if let Some(lost) = self.lost.get_mut(&id) {
            lost.node.condition = condition;
        } else if let Some(node) = self.state.nodes.get(&id).cloned() {
            self.must_take(Change::NodeSet(Node { condition, ..node }));
        }
    }

    /// Removes lost nodes that nothing names any more, and says whether there were any.
    pub(crate) fn remove_lost_nodes(&mut self) -> bool {
        let waiting: Vec<NodeId> =
            self.lost.iter().filter(|(_, lost)| !lost.removed).map(|(id, _)| *id).collect();
        let mut any = false;
        for id in waiting {
            let named = self.state.workloads.values().any(|workload| {
                let mut places = workload.places().chain(workload.leaving());
                places.any(|place| place.node == id)
            });
            if !named {
                self.must_take(Change::NodeRemoved(id));
                if let Some(lost) = self.lost.get_mut(&id) {
                    lost.removed = true;
                }
                any = true;
            }
        }
        any
    }

    /// Whether a node is lost at the moment.
    pub fn is_lost(&self, node: NodeId) -> bool {
        self.lost.contains_key(&node)
    }

    /// The control loop dies and comes back with nothing but what it has written down: once from the log, once from the
    /// state. Both must go on as if nothing had happened.
    pub fn restart(&mut self) {
        let policy = self.options.policy.clone();
        let from_state = Engine::with_state(policy.clone(), &self.state);
        let mut from_log = Engine::new(policy);
        for entry in &self.log {
            if let Err(error) = from_log.apply(&entry.change) {
                let text = format!("at {:?}, {:?}: {error}", entry.at, entry.change);
                self.find(vec![one("restart-from-log", text)]);
                return;
            }
        }
        if from_log.state() != self.state {
            self.find(vec![one("restart-from-log", "the replayed state differs")]);
        }
        let from_state = match from_state {
            Ok(engine) => engine,
            Err(error) => {
                self.find(vec![one("restart-from-state", error.to_string())]);
                return;
            }
        };
        for (rule, engine) in [("restart-from-log", &from_log), ("restart-from-state", &from_state)] {
            let plan = engine.clone().plan(self.now);
            if !plan.actions.is_empty() {
                self.find(vec![one(rule, format!("it decided anew: {:?}", plan.actions))]);
            } else if plan.wake.filter(|wake: &Time| *wake > self.now) != self.wake {
                self.find(vec![one(rule, format!("it wakes at {:?}, not {:?}", plan.wake, self.wake))]);
            }
        }
        self.engine = from_state;
    }
}
