//! Two processes on one store.
