//! What a power cut can leave of a trace: everything up to some point, or any part of what was not synced yet.

use super::Dice;
use super::backend::Op;

/// The unit a disk writes at once.
const SECTOR: usize = 512;

/// One thing a power cut could leave.
pub(super) struct Image {
    /// How many operations of the trace had been issued.
    pub(super) issued: usize,
    pub(super) what: &'static str,
    pub(super) bytes: Vec<u8>,
}

/// Visits the image after every prefix of the trace, and for each point with unsynced writes `samples` images in which
/// only a part of those reached the disk, some of them torn.
pub(super) fn each(start: &[u8], trace: &[Op], dice: &mut Dice, samples: usize, mut visit: impl FnMut(Image)) {
    let mut synced = start.to_vec();
    let mut all = synced.clone();
    let mut pending: Vec<&Op> = Vec::new();
    visit(Image { issued: 0, what: "start", bytes: all.clone() });
    for (at, op) in trace.iter().enumerate() {
        let issued = at + 1;
        if let Op::Sync = op {
            // The last moment at which all of it could still be lost.
            visit(Image { issued: at, what: "none of the unsynced", bytes: synced.clone() });
            synced.clone_from(&all);
            pending.clear();
            continue;
        }
        op.apply(&mut all);
        pending.push(op);
        visit(Image { issued, what: "prefix", bytes: all.clone() });
        for _ in 0..samples {
            let mut bytes = synced.clone();
            for op in &pending {
                match dice.below(3) {
                    0 => {}
                    1 => op.apply(&mut bytes),
                    _ => tear(op, &mut bytes, dice),
                }
            }
            visit(Image { issued, what: "part of the unsynced", bytes });
        }
    }
}

/// Some sectors of a write: its first half, its second half, or any.
fn tear(op: &Op, image: &mut Vec<u8>, dice: &mut Dice) {
    let Op::Write(offset, data) = op else { return op.apply(image) };
    // Sectors are aligned on the disk, not on the write.
    let first = SECTOR - offset % SECTOR;
    let mut bounds = vec![0];
    bounds.extend((0..).map(|n| first + n * SECTOR).take_while(|bound| *bound < data.len()));
    bounds.push(data.len());
    let sectors = bounds.len() - 1;
    let way = dice.below(3);
    for (n, bound) in bounds.windows(2).enumerate() {
        let kept = match way {
            0 => n < sectors / 2,
            1 => n >= sectors / 2,
            _ => dice.coin(),
        };
        if kept {
            Op::Write(offset + bound[0], data[bound[0]..bound[1]].to_vec()).apply(image);
        }
    }
}
