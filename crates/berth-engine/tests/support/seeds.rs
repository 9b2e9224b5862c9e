//! Runs properties over many seeds.
#![allow(dead_code, unreachable_pub)]

/// How many cases to run: what `BERTH_CASES` says, or the default.
pub fn cases(default: u64) -> u64 {
    std::env::var("BERTH_CASES").ok().and_then(|text| text.parse().ok()).unwrap_or(default)
}

/// Runs a property over many seeds on both cores, or over the one that is to be replayed. Failures name their seeds.
pub fn for_each_seed(name: &str, count: u64, property: impl Fn(u64) -> Result<(), String> + Sync) {
    if let Some(seed) = std::env::var("BERTH_SEED").ok().and_then(|text| text.parse().ok()) {
        if let Err(text) = property(seed) {
            panic!("{name}: seed {seed}\n{text}");
        }
        return;
    }
    let failures = std::sync::Mutex::new(Vec::new());
    std::thread::scope(|scope| {
        for worker in 0..2 {
            let (failures, property) = (&failures, &property);
            scope.spawn(move || {
                for seed in (worker..count).step_by(2) {
                    if let Err(text) = without_panic(|| property(seed)) {
                        let mut failures = failures.lock().expect("no panic holds it");
                        failures.push((seed, text));
                        if failures.len() >= 20 {
                            return;
                        }
                    }
                }
            });
        }
    });
    let mut failures = failures.into_inner().expect("no panic holds it");
    failures.sort();
    if let Some((seed, text)) = failures.first() {
        let others: Vec<String> = failures
            .iter()
            .map(|(seed, text)| format!("  {seed}: {}", text.lines().next().unwrap_or_default()))
            .collect();
        panic!("{name}: replay with BERTH_SEED={seed}\n{}\n{text}", others.join("\n"));
    }
}

/// What a property says, where a panic is a failure like any other.
fn without_panic(property: impl FnOnce() -> Result<(), String>) -> Result<(), String> {
    let caught = std::panic::catch_unwind(std::panic::AssertUnwindSafe(property));
    caught.unwrap_or_else(|panic| {
        let text = panic
            .downcast_ref::<String>()
            .cloned()
            .or_else(|| panic.downcast_ref::<&str>().map(|text| text.to_string()));
        Err(format!("panic: {}", text.unwrap_or_else(|| "without a text".into())))
    })
}
