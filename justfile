# `just` lists the recipes. The gate, `.ci/run`, does not need just.

_default:
    @just --list --unsorted

# Format and lints, with and without features: before every commit
check:
    cargo fmt --check
    cargo clippy --all-targets -- -D warnings
    cargo clippy --all-targets --all-features -- -D warnings

# All tests, or those whose name contains FILTER
test FILTER="":
    cargo test {{ FILTER }}
    cargo test --all-features {{ FILTER }}

# The examples; they fail if an effect happens twice or not at all
examples:
    cargo run --quiet --example payment
    cargo run --quiet --example webhooks
    cargo run --quiet --example outbox_http
    cargo run --quiet --example mqtt_gateway
    cargo run --quiet --example agent
    cargo run --quiet --example saga

# The documentation as docs.rs would build it, warnings refused
doc:
    RUSTDOCFLAGS="-D warnings" cargo doc --no-deps --all-features

# The benchmarks in full; DUPEPROOF_BENCH=quick for a short look
bench *ARGS:
    cargo bench --bench operation --features json {{ ARGS }}
    cargo bench --bench inbox
    cargo bench --bench outbox
    cargo bench --bench workflow

# What opening costs after a crash, and what a repeat costs a shell
bench-more:
    cargo bench --bench opening
    cargo bench --bench command_line --features cli

# Licences, duplicate and banned crates, sources, advisories (needs the advisory database)
deny:
    cargo deny check

# Everything the gate runs
ci:
    .ci/run
