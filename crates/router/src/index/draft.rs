//! The copy of the view that is being changed.

use headstart_core::Nanos;

use super::forest::{Forest, Land};
use super::view::View;
use super::view_change::ViewChange;

/// The view under change at `now`, and the log of changes, by which the other copy follows.
pub(super) struct ViewDraft<'a> {
    pub(super) view: &'a mut View,
    pub(super) log: &'a mut Vec<ViewChange>,
    pub(super) now: Nanos,
}

impl ViewDraft<'_> {
    /// The same copy, for changes at another time.
    pub(super) fn at(&mut self, now: Nanos) -> ViewDraft<'_> {
        ViewDraft { view: self.view, log: self.log, now }
    }

    /// The runs of the view.
    pub(super) fn forest<'a>(&'a mut self, land: &'a mut Land) -> Forest<'a> {
        Forest { land, view: self.view, log: self.log, now: self.now, coming: 0 }
    }

    pub(super) fn apply(&mut self, op: ViewChange) {
        self.view.apply(&op);
        self.log.push(op);
    }
}
