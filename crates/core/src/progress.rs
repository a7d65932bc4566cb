//! Progress of work that takes long, as the caller shows it.

/// Progress of one piece of work. It is shown until it is dropped.
pub trait Progress: Sync {
    /// Begins another piece of work beside this one, of `length` steps.
    fn beside(&self, what: &'static str, length: usize) -> Box<dyn Progress>;

    /// Begins the next part of the work, with its own count of steps.
    fn phase(&self, what: &'static str, length: Option<usize>);

    /// `count` more steps or bytes are done.
    fn inc(&self, count: u64);

    /// `position` steps are done. It is called on a hot path and may round.
    fn at(&self, position: usize);

    /// There are `length` more steps or bytes to do.
    fn inc_length(&self, length: u64);

    /// The work is done, before the value is dropped.
    fn end(&self);
}

/// Progress that is not shown.
#[derive(Clone, Copy, Debug, Default)]
pub struct NoProgress;

impl Progress for NoProgress {
    fn beside(&self, _: &'static str, _: usize) -> Box<dyn Progress> {
        Box::new(Self)
    }

    fn phase(&self, _: &'static str, _: Option<usize>) {}

    fn inc(&self, _: u64) {}

    fn at(&self, _: usize) {}

    fn inc_length(&self, _: u64) {}

    fn end(&self) {}
}
