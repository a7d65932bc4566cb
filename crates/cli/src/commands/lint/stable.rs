//! The stable prefix: what at least nine in ten prompts begin with.
//!
//! Prompts with a common prefix stand together when sorted, so the longest one of nine in ten is
//! the longest of what the first and the last of so many neighbours have in common.

/// Bytes of each prompt that are looked at.
const FRONT_BYTES_MAX: usize = 1 << 18;

/// Prompts that are looked at: the first ones.
const PROMPTS_MAX: usize = 4096;

/// Bytes of all fronts together; further prompts are not looked at.
const BYTES_MAX: usize = 1 << 28;

/// The fronts of prompts.
#[derive(Default)]
pub(super) struct Stable {
    fronts: Vec<String>,
    bytes: usize,
}

impl Stable {
    pub(super) fn add(&mut self, text: &str) {
        let end = text.len().min(FRONT_BYTES_MAX);
        let end = (0..=end)
            .rev()
            .find(|at| text.is_char_boundary(*at))
            .unwrap_or(0);
        if self.fronts.len() < PROMPTS_MAX && self.bytes + end <= BYTES_MAX {
            self.bytes += end;
            self.fronts.push(text[..end].to_owned());
        }
    }

    /// The longest text that at least nine in ten begin with; of equally long ones the first in
    /// order.
    pub(super) fn prefix(&mut self) -> &str {
        self.fronts.sort_unstable();
        let needed = (self.fronts.len() * 9).div_ceil(10).max(1);
        let windows = self.fronts.windows(needed);
        let common = windows.map(|window| common(&window[0], &window[needed - 1]));
        let longest = common.rev().max_by_key(|text| text.len());
        longest.unwrap_or_default()
    }
}

/// What both begin with.
fn common<'a>(one: &'a str, other: &str) -> &'a str {
    let pairs = one.bytes().zip(other.bytes());
    let bytes = pairs.take_while(|(one, other)| one == other).count();
    let end = (0..=bytes).rev().find(|at| one.is_char_boundary(*at));
    &one[..end.unwrap_or(0)]
}

#[cfg(test)]
mod tests {
    use super::*;

    fn check(texts: &[&str], expected: &str) {
        let mut stable = Stable::default();
        texts.iter().for_each(|text| stable.add(text));
        assert_eq!(stable.prefix(), expected);
    }

    #[test]
    fn nine_in_ten_begin_with_it() {
        check(&["rules: a", "rules: b"], "rules: ");
        check(&["rules: a"], "rules: a");
        check(&["rules: a", "other"], "");
        let mut texts = vec!["stable and more"; 9];
        texts.push("stray");
        check(&texts, "stable and more");
        texts.push("stray");
        check(&texts, "st");
        check(&["né", "nè"], "n");
        check(&[], "");
    }
}
