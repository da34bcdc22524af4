//! A bar on standard error for work that takes longer than a second, where a person looks on.

use std::io::{IsTerminal, stderr, stdout};
use std::sync::mpsc::{RecvTimeoutError, SyncSender, sync_channel};
use std::time::Duration;

use dupeproof::{Progress, Work};
use indicatif::{ProgressBar, ProgressDrawTarget, ProgressStyle};
use parking_lot::Mutex;

/// What is done sooner needs no bar.
const PATIENCE: Duration = Duration::from_secs(1);
/// How often it is drawn where nothing is reported, so that it does not look dead.
const TICK: Duration = Duration::from_millis(100);

/// Shows what a store reports; nothing where nobody would see it.
pub(crate) fn listener() -> Option<impl Fn(Progress) + Send + Sync + 'static> {
    if !stderr().is_terminal() {
        return None;
    }
    let current = Mutex::new(None::<Bar>);
    Some(move |progress: Progress| {
        // The lines of an export on the same terminal show well enough how far it is.
        if progress.work == Work::Export && stdout().is_terminal() {
            return;
        }
        let mut current = current.lock();
        if progress.done == 0 {
            *current = Some(Bar::of(progress));
        } else if let Some(bar) = &*current {
            bar.shown.set_position(progress.done);
        }
        let is_over = progress.total.map_or(progress.done > 0, |total| progress.done >= total);
        if is_over {
            current.take();
        }
    })
}

/// One piece of work. Dropped, it leaves no trace on the terminal.
struct Bar {
    shown: ProgressBar,
    _under_way: SyncSender<()>,
}

impl Bar {
    fn of(progress: Progress) -> Self {
        let shown = ProgressBar::with_draw_target(progress.total, ProgressDrawTarget::hidden())
            .with_style(style(progress.total.is_some()))
            .with_prefix(progress.work.to_string());
        let (under_way, over) = sync_channel(0);
        in_background({
            let shown = shown.clone();
            move || {
                if over.recv_timeout(PATIENCE) == Err(RecvTimeoutError::Timeout) {
                    shown.set_draw_target(ProgressDrawTarget::stderr());
                    shown.enable_steady_tick(TICK);
                }
            }
        });
        Self { shown, _under_way: under_way }
    }
}

impl Drop for Bar {
    fn drop(&mut self) {
        self.shown.finish_and_clear();
    }
}

fn style(has_total: bool) -> ProgressStyle {
    let template = match has_total {
        true => "{prefix:>8} [{bar:40}] {percent:>3}%  {eta} left",
        false => "{prefix:>8} {spinner} {elapsed}",
    };
    ProgressStyle::with_template(template).unwrap_or_else(|_| ProgressStyle::default_bar()).progress_chars("=> ")
}

#[expect(clippy::disallowed_methods, reason = "it ends by itself within a second")]
fn in_background(work: impl FnOnce() + Send + 'static) {
    drop(std::thread::spawn(work));
}
