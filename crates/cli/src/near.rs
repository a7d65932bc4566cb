//! The known name nearest to a misspelled one.

/// The nearest of `known` to `name`, if one is near: a slip, or two in a long name.
pub(crate) fn nearest<'a>(name: &str, known: impl IntoIterator<Item = &'a str>) -> Option<&'a str> {
    // Variables are written in capitals with underscores, options in lower case with hyphens.
    let plain = |text: &str| text.to_lowercase().replace('_', "-");
    let name = plain(name);
    // A third of the letters: short names must match nearly, and three slips are another word.
    let most = (name.chars().count() / 3).clamp(1, 3);
    let distances =
        known.into_iter().map(|candidate| (distance(&name, &plain(candidate)), candidate));
    let (least, it) = distances.min_by_key(|(distance, _)| *distance)?;
    (least <= most).then_some(it)
}

/// `error` with the name that was probably meant, where it says what is known: "`lur`; known: lru,
/// fifo", or "--insight onn: known are on, off".
pub(crate) fn suggested(error: String) -> String {
    match suggestion(&error) {
        Some(name) => format!("{error}; did you mean `{name}`?"),
        None => error,
    }
}

fn suggestion(error: &str) -> Option<&str> {
    // Some messages carry a suggestion already.
    if error.contains("did you mean") {
        return None;
    }
    let marks = [": known are ", "; known are ", "; known: "];
    let found = |mark: &&str| error.split_once(*mark);
    let (before, known) = marks.iter().find_map(found)?;
    // The misspelled name is the last word before the list.
    let name = before.split([' ', '`', '"']).rfind(|word| !word.is_empty())?;
    let name = name.split('=').next()?;
    let known = known.split([';', ':', '\n', '(']).next()?;
    let known = known.split(", ").flat_map(|part| part.split(" and "));
    let known = known.map(|name| name.trim_matches([' ', '.', '`']));
    // Entries with spaces are descriptions and no names.
    nearest(name, known.filter(|name| !name.is_empty() && !name.contains(' ')))
}

/// Letters to add, drop, change or swap.
fn distance(one: &str, other: &str) -> usize {
    let (one, other): (Vec<char>, Vec<char>) = (one.chars().collect(), other.chars().collect());
    let mut rows = vec![(0..=other.len()).collect::<Vec<usize>>()];
    for (at, letter) in one.iter().enumerate() {
        let mut row = vec![at + 1];
        for (to, wanted) in other.iter().enumerate() {
            // Row `at` is for the letters before this one, so both indices exist.
            let change = rows[at][to] + usize::from(letter != wanted);
            let least = change.min(rows[at][to + 1] + 1).min(row[to] + 1);
            // Two letters in the wrong order are one slip, not two.
            let is_swap = at > 0 && to > 0 && *letter == other[to - 1] && one[at - 1] == *wanted;
            row.push(if is_swap { least.min(rows[at - 1][to - 1] + 1) } else { least });
        }
        rows.push(row);
    }
    rows[one.len()][other.len()]
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_slip_is_near_and_another_word_is_not() {
        let known = ["replicas", "policy", "listen", "max-waiting"];
        for (name, expected) in [
            ("replicass", Some("replicas")),
            ("max_waiting", Some("max-waiting")),
            ("lisetn", Some("listen")),
            ("Policy", Some("policy")),
            ("temperature", None),
            ("x", None),
        ] {
            assert_eq!(nearest(name, known), expected, "{name}");
        }
    }

    #[test]
    fn errors_that_list_names_suggest_one() {
        for (error, expected) in [
            ("unknown policy `lur`; known: lru, fifo; in replay also belady", Some("lru")),
            ("--insight onn: known are on, off", Some("on")),
            ("--shadow block=3: known are replicas, blocks and block-size", Some("blocks")),
            ("there is no format mooncak; known: mooncake, agent", Some("mooncake")),
            ("unknown dtype `f16`; known: f32, bf16", Some("bf16")),
            ("cannot open x", None),
        ] {
            assert_eq!(suggestion(error), expected, "{error}");
        }
    }
}
