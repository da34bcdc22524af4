//! The architecture, enforced: which ring may use which, who begins transactions, who starts threads, how long files
//! get.

use std::collections::BTreeMap;
use std::path::{Path, PathBuf};

/// Code lines in one file, tests apart. A longer one is two things.
const CODE_LINES_MAX: usize = 420;

/// What each module may use of the others: arrows only inwards. A capability may use `operation`; otherwise
/// capabilities do not use one another.
const EDGES: &[(&str, &[&str])] = &[
    ("error", &[]),
    ("clock", &[]),
    ("machine", &["error"]),
    ("progress", &[]),
    ("options", &["clock", "error", "machine", "progress"]),
    ("storage", &["error", "machine", "options", "progress"]),
    ("engine", &["clock", "error", "machine", "options", "storage"]),
    ("store", &["clock", "engine", "error", "options", "storage"]),
    ("operation", &["engine", "error", "machine", "options", "storage", "store"]),
    ("inspect", &["error", "machine", "operation", "storage", "store"]),
    ("reconcile", &["engine", "error", "machine", "operation", "storage", "store"]),
    ("maintenance", &["error", "storage", "store"]),
    ("portable", &["error", "storage", "store"]),
    ("artifact", &["error", "machine"]),
    ("compensation", &["error", "machine", "operation", "store"]),
    ("workflow", &["error", "machine", "operation", "storage", "store"]),
    // The mark of a message is made in a transaction, and its outcome is decided like any other.
    ("inbox", &["engine", "error", "machine", "operation", "reconcile", "storage", "store", "transaction"]),
    ("transaction", &["engine", "error", "operation", "storage", "store"]),
    // `Decision` is a word of both.
    ("outbox", &["engine", "error", "machine", "reconcile", "storage", "store", "transaction"]),
];

struct Source {
    /// Path below `src`, with `/` between the parts.
    name: String,
    /// What comes before the tests, without comments.
    code: Vec<String>,
}

fn sources() -> Vec<Source> {
    let root = Path::new(env!("CARGO_MANIFEST_DIR")).join("src");
    let mut found = Vec::new();
    let mut folders = vec![root.clone()];
    while let Some(folder) = folders.pop() {
        for entry in std::fs::read_dir(folder).unwrap() {
            let path: PathBuf = entry.unwrap().path();
            if path.is_dir() {
                folders.push(path);
            } else if path.extension().is_some_and(|ending| ending == "rs") {
                let text = std::fs::read_to_string(&path).unwrap();
                let relative = path.strip_prefix(&root).unwrap();
                let name = relative.iter().map(|part| part.to_str().unwrap()).collect::<Vec<_>>().join("/");
                found.push(Source { name, code: code_of(&text) });
            }
        }
    }
    assert!(found.len() > 20, "the sources are where they were");
    found
}

fn code_of(text: &str) -> Vec<String> {
    text.lines()
        .take_while(|line| !line.starts_with("#[cfg(test)]\nmod") && *line != "mod tests {")
        .map(|line| line.split("//").next().unwrap_or_default().trim_end().to_owned())
        .filter(|line| !line.trim().is_empty())
        .collect()
}

/// Files that hold only tests, by where their parent declares them.
fn is_test_only(name: &str) -> bool {
    name.contains("/lab/") || name.ends_with("tests.rs") || name.contains("_table.rs") || name.contains("/tests/")
}

fn library() -> impl Iterator<Item = Source> {
    sources().into_iter().filter(|source| !source.name.starts_with("bin/") && !is_test_only(&source.name))
}

fn module_of(name: &str) -> &str {
    name.split(['/', '.']).next().unwrap()
}

/// Where `word` stands in code, as `file: line`.
fn uses_of(word: &str) -> BTreeMap<String, Vec<String>> {
    let mut uses = BTreeMap::<_, Vec<_>>::new();
    for source in library() {
        for line in source.code.iter().filter(|line| line.contains(word)) {
            uses.entry(source.name.clone()).or_default().push(line.clone());
        }
    }
    uses
}

#[track_caller]
fn only_in(word: &str, files: &[&str]) {
    for (file, lines) in uses_of(word) {
        assert!(files.contains(&file.as_str()), "{file} must not say `{word}`: {lines:?}");
    }
}

#[test]
fn arrows_point_inwards_only() {
    for source in library().filter(|source| source.name != "lib.rs") {
        let module = module_of(&source.name);
        let allowed = EDGES.iter().find(|(name, _)| *name == module);
        let (_, allowed) = allowed.unwrap_or_else(|| panic!("{} has no place among the rings", source.name));
        for line in &source.code {
            for used in line.split("crate::").skip(1).map(|rest| rest.split([':', ';', ' ']).next().unwrap_or_default())
            {
                let used = used.trim_matches(|c: char| !c.is_alphanumeric());
                assert!(used == module || allowed.contains(&used), "{} uses crate::{used}", source.name);
            }
        }
    }
}

#[test]
fn machine_is_pure() {
    for word in
        ["redb", "std::fs", "std::io", "std::thread", "Instant", "SystemTime", "parking_lot", "crossbeam", "rand"]
    {
        for (file, lines) in uses_of(word) {
            assert!(!file.starts_with("machine/"), "{file} must not say `{word}`: {lines:?}");
        }
    }
}

#[test]
fn storage_alone_knows_the_engine_below() {
    for word in ["redb::", "bincode::"] {
        for (file, lines) in uses_of(word) {
            // An application's own tables are the engine's: the one door where it shows.
            let may = file.starts_with("storage/")
                || word == "redb::" && matches!(file.as_str(), "transaction.rs" | "store.rs");
            assert!(may, "{file} must not say `{word}`: {lines:?}");
        }
    }
    only_in("bincode::", &["storage/codec.rs"]);
}

#[test]
fn one_place_begins_transactions_on_a_store() {
    // The other two write files that are no store yet.
    only_in("begin_write", &["storage/file.rs", "storage/schema.rs", "storage/backup.rs"]);
    only_in("begin_read", &["storage/file.rs", "storage/schema.rs"]);
}

#[test]
fn one_place_starts_threads_and_one_reads_time() {
    only_in("thread::Builder", &["engine/worker.rs"]);
    only_in("std::thread", &["engine/worker.rs", "clock.rs"]);
    only_in("SystemTime", &["clock.rs"]);
    only_in("Instant::now", &["clock.rs"]);
}

#[test]
fn no_file_is_two_things() {
    for source in sources().into_iter().filter(|source| !is_test_only(&source.name)) {
        let lines = source.code.len();
        assert!(lines <= CODE_LINES_MAX, "{} has {lines} lines of code", source.name);
    }
}

#[test]
fn command_line_uses_the_public_api_only() {
    for source in sources().into_iter().filter(|source| source.name.starts_with("bin/")) {
        for line in &source.code {
            assert!(!line.contains("#[path"), "{} reaches into the library: {line}", source.name);
        }
    }
}
