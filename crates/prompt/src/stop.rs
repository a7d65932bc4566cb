//! The end of an answer at a stop string, found while the text arrives in pieces.
//!
//! Text that may be the beginning of a stop string is held back until it is decided, so a
//! client never sees a part of one:
//!
//! ```text
//! stop "\n\nUser:"
//! pushed    Sure.  \n  \nUse  d it.    \n\nUser: hi
//! sent      Sure.             \n\nUsed it.        ■ stopped
//! ```
//!
//! The stop string that is complete first ends the answer; of several complete at once, the
//! longest, so that none of them is sent in part. The outcome does not depend on how the text
//! was cut into pieces.

/// Finds the first stop string in a text.
#[derive(Clone, Debug)]
pub struct StopMatcher {
    stops: Vec<String>,
    /// Text not yet sent: the longest end of what was pushed that begins a stop string.
    held: String,
}

/// Outcome of one piece of text.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum StopOutcome {
    /// No stop string so far. The text is safe to send; often none is.
    Continue(String),
    /// The answer is over.
    Stopped {
        /// The last text to send: up to the stop string, without it.
        text: String,
        /// The stop string, as an index into those given.
        which: usize,
    },
}

impl StopMatcher {
    /// A matcher at the start of a text. Empty stop strings never match.
    #[must_use]
    pub fn new(stops: Vec<String>) -> Self {
        Self { stops, held: String::new() }
    }

    /// Takes the next piece of text. After [`StopOutcome::Stopped`] the matcher is at the start
    /// of a text again.
    ///
    /// Linear in the piece times the number of stop strings.
    pub fn push(&mut self, piece: &str) -> StopOutcome {
        self.held.push_str(piece);
        if let Some((start, which)) = self.first_match() {
            let mut text = std::mem::take(&mut self.held);
            text.truncate(start);
            return StopOutcome::Stopped { text, which };
        }
        let undecided = self.held.split_off(self.held.len() - self.num_undecided());
        StopOutcome::Continue(std::mem::replace(&mut self.held, undecided))
    }

    /// The text held back, when no more will come.
    pub fn finish(&mut self) -> String {
        std::mem::take(&mut self.held)
    }

    /// Finds the stop string that is complete first: its start in bytes, and its index.
    fn first_match(&self) -> Option<(usize, usize)> {
        let stops = self.stops.iter().enumerate();
        let matches = stops.filter(|(_, stop)| !stop.is_empty()).filter_map(|(which, stop)| {
            // The first occurrence of each string suffices, because later ones end later.
            let start = self.held.find(stop.as_str())?;
            Some((start + stop.len(), start, which))
        });
        // The earliest end wins; of equal ends the earliest start, which is the longest string.
        matches.min().map(|(_, start, which)| (start, which))
    }

    /// Length in bytes of the longest end of the held text that begins a stop string.
    fn num_undecided(&self) -> usize {
        let begins = |stop: &str| {
            // A whole stop string would have matched, so only its proper beginnings are held.
            let longest = stop.len().saturating_sub(1).min(self.held.len());
            let mut lengths = (1..=longest).rev().filter(|&length| stop.is_char_boundary(length));
            lengths.find(|&length| self.held.ends_with(&stop[..length]))
        };
        self.stops.iter().filter_map(|stop| begins(stop)).max().unwrap_or(0)
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use headstart_core::Rng;

    /// The text sent, and the index of the stop string.
    type Answer = (String, Option<usize>);

    fn run(stops: &[&str], pieces: &[&str]) -> Answer {
        let mut matcher = StopMatcher::new(stops.iter().map(|&stop| stop.to_owned()).collect());
        let mut sent = String::new();
        for piece in pieces {
            match matcher.push(piece) {
                StopOutcome::Continue(text) => sent += &text,
                StopOutcome::Stopped { text, which } => return (sent + &text, Some(which)),
            }
        }
        (sent + &matcher.finish(), None)
    }

    /// The obvious search: after each character, does the text end with a stop string?
    fn reference(stops: &[&str], text: &str) -> Answer {
        for (start, character) in text.char_indices() {
            let so_far = &text[..start + character.len_utf8()];
            let complete = stops.iter().enumerate();
            let complete =
                complete.filter(|(_, stop)| !stop.is_empty() && so_far.ends_with(**stop));
            let longest = complete.min_by_key(|&(which, stop)| (usize::MAX - stop.len(), which));
            if let Some((which, stop)) = longest {
                return (so_far[..so_far.len() - stop.len()].to_owned(), Some(which));
            }
        }
        (text.to_owned(), None)
    }

    fn check(stops: &[&str], pieces: &[&str], sent: &str, which: Option<usize>) {
        let expected = (sent.to_owned(), which);
        assert_eq!(run(stops, pieces), expected);
        assert_eq!(reference(stops, &pieces.concat()), expected);
    }

    #[test]
    fn stops_are_found_across_pieces() {
        check(
            &["\n\nUser:"],
            &["Sure.", "\n", "\nUse", "d it.", "\n\nUs", "er: hi"],
            "Sure.\n\nUsed it.",
            Some(0),
        );
        check(&["aab"], &["a", "a", "a", "b", "c"], "a", Some(0));
        check(&["é🎉"], &["née ", "é", "🎉x"], "née ", Some(0));
        check(&[], &["a", "b"], "ab", None);
        check(&["", "c"], &["ab", "c"], "ab", Some(1));
    }

    #[test]
    fn the_first_to_be_complete_wins_then_the_longest() {
        check(&["abcdef", "cd"], &["xabcdef"], "xab", Some(1));
        check(&["cd", "bcd", "bcd"], &["ab", "cd"], "a", Some(1));
    }

    #[test]
    fn what_only_began_a_stop_is_flushed() {
        check(&["</answer>"], &["<b></", "ans"], "<b></ans", None);
    }

    #[test]
    fn nothing_is_held_without_cause() {
        let mut matcher = StopMatcher::new(vec!["stop".to_owned()]);
        assert_eq!(matcher.push("go s"), StopOutcome::Continue("go ".to_owned()));
        assert_eq!(matcher.push("low"), StopOutcome::Continue("slow".to_owned()));
    }

    #[test]
    fn any_cut_of_any_text_gives_the_same_answer() {
        const ALPHABET: [&str; 4] = ["a", "b", "é", "🎉"];
        let mut rng = Rng::new(11);
        let random = |rng: &mut Rng, length: usize| -> String {
            (0..length).map(|_| ALPHABET[rng.below(ALPHABET.len())]).collect()
        };
        for case in 0..20_000 {
            let num_stops = rng.below(4);
            let stops: Vec<_> = (0..num_stops)
                .map(|_| {
                    let length = rng.below(6);
                    random(&mut rng, length)
                })
                .collect();
            let stops: Vec<_> = stops.iter().map(String::as_str).collect();
            let num_pieces = rng.below(10);
            let pieces: Vec<_> = (0..num_pieces)
                .map(|_| {
                    let length = rng.below(5);
                    random(&mut rng, length)
                })
                .collect();
            let pieces: Vec<_> = pieces.iter().map(String::as_str).collect();
            let expected = reference(&stops, &pieces.concat());
            assert_eq!(run(&stops, &pieces), expected, "case {case}: {stops:?} in {pieces:?}");
        }
    }
}
