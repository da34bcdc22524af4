//! Processes that are killed: whatever they were about to do, no effect happens twice, and none is reported that did not.

mod points;
