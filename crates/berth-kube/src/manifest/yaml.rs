//! Objects as the text of a file.

use serde_json::Value;

/// Objects as one YAML file for `kubectl apply -f`.
pub fn yaml(objects: &[Value]) -> String {
    let texts =
        objects.iter().map(|object| serde_saphyr::to_string(object).expect("JSON can be written as YAML"));
    texts.map(|text| format!("---\n{}\n", text.trim_end())).collect()
}

/// Compares a committed file with what the code makes; writes it when `BERTH_UPDATE` is set.
#[cfg(test)]
pub(crate) fn fresh(path: &str, objects: &[Value]) {
    let file = std::path::Path::new(env!("CARGO_MANIFEST_DIR")).join("../..").join(path);
    let header = "# Made from crates/berth-kube; BERTH_UPDATE=1 cargo test -p berth-kube writes it again.\n";
    let text = format!("{header}{}", yaml(objects));
    if std::env::var_os("BERTH_UPDATE").is_some() {
        std::fs::create_dir_all(file.parent().expect("has a folder")).expect("the folder can be made");
        std::fs::write(&file, &text).expect("the file can be written");
    }
    let committed = std::fs::read_to_string(&file).unwrap_or_default();
    assert!(committed == text, "{path} is stale: BERTH_UPDATE=1 cargo test -p berth-kube writes it again");
    let read: Vec<Value> = serde_saphyr::from_multiple(&committed).expect("is YAML");
    assert_eq!(read, objects, "{path} reads back as what was written");
}
