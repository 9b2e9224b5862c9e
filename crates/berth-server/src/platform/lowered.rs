//! Warnings about quotas and limits that are set below what already runs.
//!
//! Such a setting is accepted: the administrator may know what they do, and the engine needs no exception for it. Nothing that
//! runs is stopped by a lower limit; what a lower quota no longer covers becomes borrowed; a shorter time limit counts for what
//! already runs too.

use super::Platform;
use berth_types::{Department, Gpus, Kind, Project, Time};

impl Platform {
    /// What the new settings of a project mean for what it runs.
    pub(super) fn project_lowered(&self, new: &Project, now: Time) -> Vec<String> {
        let Some(old) = self.engine.projects().get(&new.id) else { return Vec::new() };
        let mut warnings = Vec::new();
        for (pool, entitlement) in &new.entitlements {
            let before = old.entitlements.get(pool);
            let views = self.project_views(pool);
            let Some(view) = views.iter().find(|view| view.name == new.name) else { continue };
            let (used, kept) = (view.allocated.0, view.allocated_non_preemptible.0);
            if entitlement.limit != before.and_then(|before| before.limit) {
                warnings.extend(
                    entitlement.limit.filter(|limit| *limit < used).map(|limit| over_limit(used, limit)),
                );
            }
            let quota = entitlement.quota.unwrap_or(Gpus::ZERO);
            let is_lower = before.and_then(|before| before.quota).is_some_and(|before| quota < before);
            if is_lower && quota < used {
                let borrowed = used.saturating_sub(quota.max(kept));
                let mut text = format!("{used} GPUs are allocated, above the new quota of {quota}");
                if !borrowed.is_zero() {
                    text.push_str(&format!(
                        ": {borrowed} are borrowed now, and other projects can reclaim them"
                    ));
                }
                if kept > quota {
                    text.push_str(&format!(
                        ": {kept} are of non-preemptible workloads, which keep running; new ones wait"
                    ));
                }
                warnings.push(text);
            }
        }
        warnings.extend(self.overdue(old, new, now));
        warnings
    }

    /// Workloads that a shorter time limit ends at once.
    fn overdue(&self, old: &Project, new: &Project, now: Time) -> Option<String> {
        let is_changed =
            (old.time_limit, old.interactive_time_limit) != (new.time_limit, new.interactive_time_limit);
        if !is_changed {
            return None;
        }
        let ends = |project: &Project, record: &super::Record| {
            let workload = self.engine.workload(record.id).filter(|workload| workload.is_running())?;
            let interactive =
                (workload.spec.kind == Kind::Interactive).then_some(project.interactive_time_limit).flatten();
            record.must_end([project.time_limit, interactive].into_iter().flatten())
        };
        let is_overdue = |record: &&super::Record| {
            record.project == new.id
                && ends(new, record).is_some_and(|end| end <= now)
                && ends(old, record).is_none_or(|end| end > now)
        };
        match self.records.values().filter(is_overdue).count() {
            0 => None,
            1 => Some("1 running workload has run longer than the new time limit, and ends now".into()),
            count => Some(format!(
                "{count} running workloads have run longer than the new time limit, and end now"
            )),
        }
    }

    /// What the new settings of a department mean for what its projects run.
    pub(super) fn department_lowered(&self, new: &Department) -> Vec<String> {
        let Some(old) = self.engine.departments().get(&new.id) else { return Vec::new() };
        let mut warnings = Vec::new();
        for (pool, entitlement) in &new.entitlements {
            let before = old.entitlements.get(pool).and_then(|before| before.limit);
            let views = self.department_views(pool);
            let Some(view) = views.iter().find(|view| view.name == new.name) else { continue };
            let used = view.allocated.0;
            if entitlement.limit != before {
                warnings.extend(
                    entitlement.limit.filter(|limit| *limit < used).map(|limit| over_limit(used, limit)),
                );
            }
        }
        warnings
    }
}

fn over_limit(used: Gpus, limit: Gpus) -> String {
    format!(
        "{used} GPUs are allocated, above the new limit of {limit}: nothing that runs is stopped, and nothing new starts until fewer \
         are allocated"
    )
}
