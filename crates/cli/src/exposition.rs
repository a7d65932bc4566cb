//! Prometheus's text format, as far as sums of counters need it.

/// A line with a value.
#[derive(Clone, Debug, PartialEq)]
pub(crate) struct MetricSample<'a> {
    pub(crate) name: &'a str,
    labels: Vec<(&'a str, String)>,
    pub(crate) value: f64,
}

impl MetricSample<'_> {
    /// Returns the value of a label, or an empty string if it is absent.
    pub(crate) fn label(&self, name: &str) -> &str {
        let found = self.labels.iter().find(|(label, _)| *label == name);
        found.map_or("", |(_, value)| value)
    }
}

/// All lines that say a number; others are none of ours.
pub(crate) fn samples(text: &str) -> impl Iterator<Item = MetricSample<'_>> {
    text.lines().filter_map(sample)
}

fn sample(line: &str) -> Option<MetricSample<'_>> {
    let line = line.trim_start();
    // Comments carry types and help texts, and no values.
    if line.starts_with('#') {
        return None;
    }
    let end = line.find(['{', ' '])?;
    let (name, rest) = line.split_at(end);
    let (labels, rest) = match rest.strip_prefix('{') {
        Some(rest) => labels(rest)?,
        None => (Vec::new(), rest),
    };
    // A time stamp may follow the value, so only the first word counts.
    let value = rest.split_whitespace().next()?.parse().ok()?;
    Some(MetricSample { name, labels, value })
}

/// Names and values up to the closing brace, and what is behind it.
fn labels(mut rest: &str) -> Option<(Vec<(&str, String)>, &str)> {
    let mut labels = Vec::new();
    loop {
        // A comma may follow the last label.
        rest = rest.trim_start_matches([',', ' ']);
        if let Some(rest) = rest.strip_prefix('}') {
            return Some((labels, rest));
        }
        // A label without quotes is no line of this format.
        let (name, behind) = rest.split_once("=\"")?;
        let (value, behind) = quoted(behind)?;
        labels.push((name, value));
        rest = behind;
    }
}

/// A text up to its closing quote, which is left out, and what is behind it.
fn quoted(text: &str) -> Option<(String, &str)> {
    let mut value = String::new();
    let mut letters = text.char_indices();
    while let Some((at, letter)) = letters.next() {
        match letter {
            '"' => return Some((value, &text[at + 1..])),
            '\\' => value.push(match letters.next()?.1 {
                // The format escapes the backslash, the quote and the line break.
                'n' => '\n',
                other => other,
            }),
            other => value.push(other),
        }
    }
    None
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn lines_are_taken_apart() {
        let text = "# HELP a b\n# TYPE a counter\na{x=\"1\",y=\"q\\\"}\\\\\\n,=\"} 2.5\nb 3\n\
            c{} 1e3 1700000000\nd{x=\"open 1\ne\nf{x=\"1\"} many\n";
        let samples: Vec<MetricSample<'_>> = samples(text).collect();
        let names: Vec<&str> = samples.iter().map(|sample| sample.name).collect();
        assert_eq!(names, ["a", "b", "c"]);
        let values: Vec<f64> = samples.iter().map(|sample| sample.value).collect();
        assert_eq!(values, [2.5, 3.0, 1_000.0]);
        assert_eq!(samples[0].label("y"), "q\"}\\\n,=");
        assert_eq!((samples[0].label("x"), samples[1].label("x")), ("1", ""));
    }
}
