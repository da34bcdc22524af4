//! A disk made of bytes: it records what was asked of it, fails on demand, and knows what a power cut would leave.

use std::io;
use std::sync::Arc;

use crossbeam_channel::{Receiver, Sender, bounded};
use parking_lot::Mutex;
use redb::StorageBackend;

use super::Dice;

/// What a store did to its file.
#[derive(Debug, Clone)]
pub(super) enum Op {
    Write(usize, Vec<u8>),
    SetLen(usize),
    Sync,
}

/// Which operations a fault counts.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Class {
    /// Writes, changes of length and syncs.
    Change,
    Sync,
    Read,
    Len,
}

/// What is left of the operation that failed.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Left {
    Nothing,
    /// The first half of a write.
    Half,
    /// Of a failed sync: what this seed says reached the disk; the rest is forgotten and never written again, although
    /// reading still shows it. That is what Linux does.
    Some(u64),
}

#[derive(Debug, Clone, Copy)]
pub(super) struct Fault {
    pub(super) class: Class,
    /// How many operations of the class go well first.
    pub(super) after: usize,
    /// The operating system's number of the error.
    pub(super) errno: i32,
    pub(super) sticky: bool,
    pub(super) left: Left,
}

pub(super) const EIO: i32 = 5;
pub(super) const ENOSPC: i32 = 28;

/// The disk's size: a damaged file may ask for anything.
const LEN_MAX: u64 = 1 << 30;

/// Where a sync waits, and what lets it go on.
type Gate = (Sender<()>, Receiver<()>);

#[derive(Debug, Default)]
struct Disk {
    /// What reading shows.
    cache: Vec<u8>,
    /// What certainly survives a power cut.
    disk: Vec<u8>,
    /// What was written since the last sync.
    pending: Vec<Op>,
    trace: Vec<Op>,
    fault: Option<Fault>,
    fired: usize,
    gate: Option<(usize, Gate)>,
}

/// Clones share the disk, so that it outlives the store on it.
#[derive(Debug, Clone)]
pub(super) struct LabBackend(Arc<Mutex<Disk>>);

/// Lets a sync that is held go on.
pub(super) struct Held {
    arrived: Receiver<()>,
    go: Sender<()>,
}

impl Held {
    pub(super) fn wait(&self) {
        // Long enough for any disk of bytes, so that a sync that never comes is a failure and not a hang.
        self.arrived.recv_timeout(std::time::Duration::from_secs(20)).expect("the sync comes");
    }

    pub(super) fn let_go(self) {
        self.go.send(()).expect("the sync waits");
    }
}

impl LabBackend {
    pub(super) fn of(image: Vec<u8>) -> Self {
        Self(Arc::new(Mutex::new(Disk { cache: image.clone(), disk: image, ..Disk::default() })))
    }

    /// Everything done so far.
    pub(super) fn trace(&self) -> Vec<Op> {
        self.0.lock().trace.clone()
    }

    /// How many operations that change were done so far.
    pub(super) fn changes(&self) -> usize {
        self.0.lock().trace.len()
    }

    /// What the next process on this machine finds.
    pub(super) fn cache(&self) -> Vec<u8> {
        self.0.lock().cache.clone()
    }

    /// What the next boot finds if nothing unsynced was written.
    pub(super) fn disk(&self) -> Vec<u8> {
        self.0.lock().disk.clone()
    }

    /// What the next boot finds if the seed says which of the unsynced writes reached the disk.
    pub(super) fn disk_after_power_cut(&self, seed: u64) -> Vec<u8> {
        let disk = self.0.lock();
        let mut image = disk.disk.clone();
        let mut dice = Dice::new(seed);
        disk.pending.iter().filter(|_| dice.coin()).for_each(|op| op.apply(&mut image));
        image
    }

    pub(super) fn arm(&self, fault: Fault) {
        let mut disk = self.0.lock();
        disk.fault = Some(fault);
        disk.fired = 0;
    }

    /// Ends the fault. Says how often it struck.
    pub(super) fn mend(&self) -> usize {
        let mut disk = self.0.lock();
        disk.fault = None;
        disk.fired
    }

    /// Makes a sync wait, when so many have passed.
    pub(super) fn hold_sync(&self, after: usize) -> Held {
        let (arrive, arrived) = bounded(1);
        let (go, gone) = bounded(1);
        self.0.lock().gate = Some((after, (arrive, gone)));
        Held { arrived, go }
    }
}

impl Op {
    pub(super) fn apply(&self, image: &mut Vec<u8>) {
        match self {
            Self::Write(offset, data) => put(image, *offset, data),
            Self::SetLen(len) => image.resize(*len, 0),
            Self::Sync => {}
        }
    }
}

fn put(image: &mut Vec<u8>, offset: usize, data: &[u8]) {
    let end = offset + data.len();
    if image.len() < end {
        image.resize(end, 0);
    }
    image[offset..end].copy_from_slice(data);
}

impl Disk {
    /// The fault that strikes now, if one does.
    fn strike(&mut self, class: Class) -> Option<(io::Error, Left)> {
        let fault = self.fault.as_mut()?;
        let counts = fault.class == class || fault.class == Class::Change && class == Class::Sync;
        if !counts || (self.fired > 0 && !fault.sticky) {
            return None;
        }
        if fault.after > 0 {
            fault.after -= 1;
            return None;
        }
        self.fired += 1;
        Some((io::Error::from_raw_os_error(fault.errno), fault.left))
    }

    fn gate_of_this_sync(&mut self) -> Option<Gate> {
        let (after, gate) = self.gate.take()?;
        if after == 0 {
            return Some(gate);
        }
        self.gate = Some((after - 1, gate));
        None
    }

    fn change(&mut self, op: Op) {
        op.apply(&mut self.cache);
        self.pending.push(op.clone());
        self.trace.push(op);
    }
}

fn at(offset: u64) -> usize {
    usize::try_from(offset).expect("lab disks are small")
}

impl StorageBackend for LabBackend {
    fn len(&self) -> io::Result<u64> {
        let mut disk = self.0.lock();
        match disk.strike(Class::Len) {
            Some((error, _)) => Err(error),
            None => Ok(disk.cache.len() as u64),
        }
    }

    fn read(&self, offset: u64, out: &mut [u8]) -> io::Result<()> {
        let mut disk = self.0.lock();
        if let Some((error, _)) = disk.strike(Class::Read) {
            return Err(error);
        }
        let start = usize::try_from(offset).map_err(|_| io::ErrorKind::UnexpectedEof)?;
        let end = start.checked_add(out.len()).ok_or(io::ErrorKind::UnexpectedEof)?;
        out.copy_from_slice(disk.cache.get(start..end).ok_or(io::ErrorKind::UnexpectedEof)?);
        Ok(())
    }

    fn set_len(&self, len: u64) -> io::Result<()> {
        if len > LEN_MAX {
            return Err(io::Error::from_raw_os_error(ENOSPC));
        }
        let mut disk = self.0.lock();
        if let Some((error, _)) = disk.strike(Class::Change) {
            return Err(error);
        }
        disk.change(Op::SetLen(at(len)));
        Ok(())
    }

    fn sync_data(&self) -> io::Result<()> {
        let gate = self.0.lock().gate_of_this_sync();
        if let Some((arrive, go)) = gate {
            arrive.send(()).expect("the test waits for the sync");
            go.recv().expect("the test lets the sync go");
        }
        let mut disk = self.0.lock();
        let struck = disk.strike(Class::Sync);
        let pending = std::mem::take(&mut disk.pending);
        match struck {
            None => {
                pending.iter().for_each(|op| op.apply(&mut disk.disk));
                disk.trace.push(Op::Sync);
                Ok(())
            }
            Some((error, Left::Some(seed))) => {
                let mut dice = Dice::new(seed);
                pending.iter().filter(|_| dice.coin()).for_each(|op| op.apply(&mut disk.disk));
                Err(error)
            }
            Some((error, Left::Nothing | Left::Half)) => {
                disk.pending = pending;
                Err(error)
            }
        }
    }

    fn write(&self, offset: u64, data: &[u8]) -> io::Result<()> {
        if offset > LEN_MAX {
            return Err(io::Error::from_raw_os_error(ENOSPC));
        }
        let mut disk = self.0.lock();
        match disk.strike(Class::Change) {
            Some((error, left)) => {
                if left == Left::Half {
                    disk.change(Op::Write(at(offset), data[..data.len() / 2].to_vec()));
                }
                Err(error)
            }
            None => {
                disk.change(Op::Write(at(offset), data.to_vec()));
                Ok(())
            }
        }
    }
}
