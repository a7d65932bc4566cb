//! Which contents were seen before, wherever in a prompt they stood.
//!
//! Every window of [`WINDOW`] tokens has a rolling hash that depends on its tokens alone, not on
//! where they stand. Of every [`SPREAD`] windows in a row the one of the least hash is an
//! *anchor*, so that the same text has the same anchors behind any prefix, and no gap between two
//! is longer than that. Anchors are kept in a bounded table, the oldest of a line giving way.
//!
//! Source: rolling hash by cyclic polynomials (Cohen 1997), which takes no multiplication;
//! choosing the least of a row is winnowing (Schleimer, Wilkerson, Aiken, SIGMOD 2003). Text
//! shorter than a window and a spread together may go unnoticed; where known and new meet, the
//! border is off by half a spread at most in the mean.

use std::hint::black_box;

use headstart_core::TokenId;

use super::key::Key;

/// Tokens of a window: longer than the markup between two messages.
const WINDOW: usize = 16;

/// Of so many windows in a row at least one is an anchor.
const SPREAD: usize = 16;

/// Anchors of a line of 64 bytes; the rest of it says which gives way next.
const LINE: usize = 15;

/// So many tokens in front of a text are enough for windows that span its border.
pub(super) const REACH: usize = WINDOW + SPREAD;

/// A bounded set of anchors.
#[derive(Clone, Debug)]
pub(super) struct Contents {
    lines: Vec<Line>,
    key: Key,
    entered: u64,
    forgotten: u64,
    /// Of the prompt at hand; kept for their memory.
    found: Vec<Anchor>,
    parts: Vec<u64>,
    hashes: Vec<u64>,
}

#[derive(Clone, Copy, Debug, Default)]
#[repr(align(64))]
struct Line {
    tags: [u32; LINE],
    next: u32,
}

#[derive(Clone, Copy, Debug)]
struct Anchor {
    /// Its window's first token.
    start: usize,
    hash: u64,
    is_known: bool,
}

impl Contents {
    /// Room for `capacity` anchors, or somewhat more: about 8 tokens each.
    pub(super) fn new(capacity: usize, key: Key) -> Self {
        let lines = capacity.div_ceil(LINE).next_power_of_two();
        Self {
            lines: vec![Line::default(); lines],
            key,
            entered: 0,
            forgotten: 0,
            found: Vec::new(),
            parts: Vec::new(),
            hashes: Vec::new(),
        }
    }

    /// Anchors entered, and those that had to go for others.
    pub(super) fn counts(&self) -> (u64, u64) {
        (self.entered, self.forgotten)
    }

    /// Anchors that there is room for.
    pub(super) fn capacity(&self) -> usize {
        self.lines.len() * LINE
    }

    /// Calls `visit` with the tokens of `tokens` that are known, as ranges in order. Adds what
    /// [`Contents::enter`] is to be told, when all of them are, to `new`.
    pub(super) fn look(
        &mut self,
        tokens: &[TokenId],
        new: &mut Vec<u64>,
        visit: &mut dyn FnMut(usize, usize),
    ) {
        self.anchor(tokens);
        known_ranges(&self.found, tokens.len(), visit);
        let unknown = self.found.iter().filter(|anchor| !anchor.is_known);
        new.extend(unknown.map(|anchor| anchor.hash));
    }

    /// Remembers anchors.
    pub(super) fn enter(&mut self, anchors: &[u64]) {
        let nexts = anchors
            .iter()
            .map(|&hash| self.lines[self.place(hash).0].next);
        // Their lines come from memory together.
        black_box(nexts.fold(0, |sum, next| sum ^ next));
        anchors.iter().for_each(|&hash| self.enter_one(hash));
    }

    /// Finds the anchors of `tokens`, and which of them are known.
    fn anchor(&mut self, tokens: &[TokenId]) {
        self.found.clear();
        self.hash_windows(tokens);
        let mut last = None;
        for row in 0..(self.hashes.len() + 1).saturating_sub(SPREAD) {
            let least = match last {
                // The least so far is still in the row: only the newest can beat it.
                Some(last) if last >= row => {
                    let newest = row + SPREAD - 1;
                    match self.hashes[newest] < self.hashes[last] {
                        true => newest,
                        false => continue,
                    }
                }
                _ => {
                    let row = row..row + SPREAD;
                    row.min_by_key(|&at| self.hashes[at]).unwrap_or(0)
                }
            };
            last = Some(least);
            let hash = self.hashes[least];
            self.found.push(Anchor {
                start: least,
                hash,
                is_known: false,
            });
        }
        // Apart, so that their lines come from memory together.
        for index in 0..self.found.len() {
            self.found[index].is_known = self.contains(self.found[index].hash);
        }
    }

    /// Each token's part is turned by one bit with every token behind it, and leaves when it has
    /// been turned by [`WINDOW`].
    fn hash_windows(&mut self, tokens: &[TokenId]) {
        self.parts.clear();
        let key = self.key;
        self.parts
            .extend(tokens.iter().map(|&token| key.of_token(token)));
        self.hashes.clear();
        let Some((first, rest)) = self.parts.split_at_checked(WINDOW) else {
            return;
        };
        let enters = |rolling: u64, part: &u64| rolling.rotate_left(1) ^ part;
        let mut rolling = first.iter().fold(0, enters);
        self.hashes.push(rolling);
        self.hashes
            .extend(rest.iter().zip(&self.parts).map(|(part, gone)| {
                rolling = enters(rolling, part) ^ gone.rotate_left(WINDOW as u32);
                rolling
            }));
    }

    fn contains(&self, hash: u64) -> bool {
        let (line, tag) = self.place(hash);
        self.lines[line].tags.contains(&tag)
    }

    fn enter_one(&mut self, hash: u64) {
        let (line, tag) = self.place(hash);
        let line = &mut self.lines[line];
        if !line.tags.contains(&tag) {
            let place = &mut line.tags[line.next as usize % LINE];
            self.entered += 1;
            self.forgotten += u64::from(*place != 0);
            *place = tag;
            line.next = line.next.wrapping_add(1) % LINE as u32;
        }
    }

    fn place(&self, hash: u64) -> (usize, u32) {
        // Anchors are least hashes: their uppermost bits are not evenly spread, the others are.
        let line = hash as usize & (self.lines.len() - 1);
        (line, ((hash >> 24) as u32).max(1))
    }
}

/// The tokens that windows of known anchors cover. Where a known and an unknown one meet (or the
/// text ends), the border is somewhere between the last token that is sure and the first of which
/// the other says that something is new: the known part is taken to reach half a spread on.
fn known_ranges(anchors: &[Anchor], len: usize, visit: &mut dyn FnMut(usize, usize)) {
    const HALF: usize = SPREAD / 2;
    let mut at = 0;
    let mut index = 0;
    while index < anchors.len() {
        if !anchors[index].is_known {
            index += 1;
            continue;
        }
        let run = anchors[index..].iter().take_while(|anchor| anchor.is_known);
        let last = index + run.count() - 1;
        let start = match index {
            0 if anchors[0].start < SPREAD => 0,
            _ => anchors[index].start.saturating_sub(HALF),
        };
        let sure = anchors[last].start + WINDOW;
        let end = match last + 1 == anchors.len() {
            true if len - sure.min(len) < SPREAD => len,
            _ => (sure + HALF).min(len),
        };
        let start = start.max(at);
        if end > start {
            visit(start, end);
            at = end;
        }
        index = last + 1;
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use headstart_core::Rng;

    fn random(rng: &mut Rng, len: usize) -> Vec<TokenId> {
        (0..len).map(|_| rng.below(100_000) as TokenId).collect()
    }

    fn known(contents: &mut Contents, tokens: &[TokenId]) -> Vec<bool> {
        let mut known = vec![false; tokens.len()];
        let mut new = Vec::new();
        contents.look(tokens, &mut new, &mut |from, to| known[from..to].fill(true));
        contents.enter(&new);
        known
    }

    #[test]
    fn nothing_is_known_at_first_and_all_of_it_the_second_time() {
        let mut rng = Rng::new(1);
        let mut contents = Contents::new(1 << 16, Key::new(5));
        for len in [0, 1, 15, 16, 23, 24, 100, 1_000] {
            let tokens = random(&mut rng, len);
            assert!(!known(&mut contents, &tokens).contains(&true), "{len}");
            let again = known(&mut contents, &tokens);
            let expected = len >= WINDOW + SPREAD - 1;
            assert!(again.iter().all(|&it| it == expected), "{len}");
        }
    }

    /// Known text in new text, at any place: borders are off by little, on either side alike.
    #[test]
    fn known_text_is_found_wherever_it_stands() {
        let mut rng = Rng::new(2);
        let mut contents = Contents::new(1 << 20, Key::new(5));
        let (mut wrong, mut all, mut too_many) = (0i64, 0i64, 0i64);
        for _ in 0..200 {
            let old = random(&mut rng, 300);
            known(&mut contents, &old);
            let front = 50 + rng.below(50);
            let mut tokens = random(&mut rng, front);
            tokens.extend(&old);
            tokens.extend(random(&mut rng, 80));
            for (at, is_known) in known(&mut contents, &tokens).into_iter().enumerate() {
                let truth = (front..front + old.len()).contains(&at);
                wrong += i64::from(is_known != truth);
                too_many += i64::from(is_known) - i64::from(truth);
                all += 1;
            }
        }
        assert!(wrong * 100 < all * 2, "{wrong} of {all} tokens");
        assert!(too_many.abs() * 100 < all, "{too_many} of {all} tokens");
    }

    #[test]
    fn a_full_table_forgets_and_says_so() {
        let mut rng = Rng::new(3);
        let mut contents = Contents::new(64, Key::new(5));
        for _ in 0..20 {
            let tokens = random(&mut rng, 500);
            known(&mut contents, &tokens);
        }
        let (entered, forgotten) = contents.counts();
        assert!(forgotten > 0 && forgotten < entered);
    }
}
