//! The copy of the view that is being changed.

use headstart_core::Nanos;

use super::forest::{Forest, Land};
use super::view::View;
use super::view_change::ViewChange;

/// The view under change, and the log of changes, by which the other copy follows.
pub(super) struct ViewDraft<'a> {
    pub(super) view: &'a mut View,
    pub(super) log: &'a mut Vec<ViewChange>,
}

impl ViewDraft<'_> {
    pub(super) fn apply(&mut self, op: ViewChange) {
        self.view.apply(&op);
        self.log.push(op);
    }
}

/// The runs of the view, for changes at `now`.
pub(super) fn forest<'a>(
    land: &'a mut Land,
    draft: &'a mut ViewDraft<'_>,
    now: Nanos,
) -> Forest<'a> {
    Forest { land, view: draft.view, log: draft.log, now, coming: 0 }
}
