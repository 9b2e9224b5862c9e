//! stub
use berth_types::*;
/// stub
#[derive(Clone, Debug, Default)]
pub struct Engine { policy: Policy, state: State }
#[allow(missing_docs)]
impl Engine {
    pub fn new(policy: Policy) -> Self { Self { policy, state: State::default() } }
    pub fn with_state(policy: Policy, state: &State) -> Result<Self, ChangeError> {
        let mut e = Self::new(policy); for c in state.changes() { e.apply(&c)?; } Ok(e)
    }
    pub fn apply(&mut self, change: &Change) -> Result<(), ChangeError> { self.state.apply(change) }
    pub fn plan(&mut self, now: Time) -> Plan { let _ = &self.policy; Plan { at: now, ..Plan::default() } }
    pub fn ask(&self, changes: &[Change], now: Time) -> Result<Plan, ChangeError> {
        let mut e = self.clone(); for c in changes { e.apply(c)?; } Ok(e.plan(now))
    }
    pub fn explain(&self, _workload: WorkloadId, _now: Time) -> Option<Explanation> { None }
    pub fn workload(&self, id: WorkloadId) -> Option<&Workload> { self.state.workloads.get(&id) }
    pub fn fair_shares(&self, _pool: &str) -> Vec<(Account, Gpus)> { Vec::new() }
    pub fn state(&self) -> State { self.state.clone() }
}
