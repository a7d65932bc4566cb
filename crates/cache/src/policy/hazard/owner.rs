//! Owners of blocks, by slot.

use super::pieces::PieceId;

/// The owner of a slot's block: a piece, with a bit for a block that was its ghost and that no
/// request has released since.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct Owner(u32);

impl Owner {
    pub(super) const NONE: Self = Self(u32::MAX);
    const GHOST: u32 = 1 << 31;

    pub(super) fn ghost_of(piece: Option<PieceId>) -> Self {
        piece.map_or(Self::NONE, |piece| Self(piece.bits() | Self::GHOST))
    }

    pub(super) fn of(piece: Option<PieceId>) -> Self {
        piece.map_or(Self::NONE, |piece| Self(piece.bits()))
    }

    /// The piece, and whether the block is a resident one of it.
    pub(super) fn piece(self) -> Option<(PieceId, bool)> {
        (self != Self::NONE)
            .then(|| (PieceId::from_bits(self.0 & !Self::GHOST), self.0 & Self::GHOST == 0))
    }

    /// The piece of which the block is a resident one.
    pub(super) fn resident_of(self) -> Option<PieceId> {
        self.piece().filter(|(_, is_resident)| *is_resident).map(|(piece, _)| piece)
    }
}
