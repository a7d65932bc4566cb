//! The analysis for a terminal: sections with short bars, and the findings last, where a reader
//! looks first.

use headstart_analysis::results::{Amount, Analysis};
use headstart_core::figures::{counted, duration, money, percent, thousands};
use headstart_core::shown::one_line;
use headstart_insight::Bucket;
use headstart_terminal::{COLUMNS, aligned, colour, wrapped};
use headstart_trace::characterize::Spread;
use headstart_trace::characterize::report::Next;

use super::HIDDEN;

/// Columns of a full bar.
const BAR: usize = 12;

/// Rows of the size curve that are shown.
const CURVE_ROWS: usize = 10;

/// Characters of a text that an example shows.
const EXAMPLE_CHARS: usize = 64;

/// Level of detail.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Sections {
    /// Waterfall, causes and findings.
    Main,
    /// Also cache sizes, routing, and what the traffic looks like.
    All,
}

/// The sections, without the last line's end.
pub fn text(analysis: &Analysis, sections: Sections) -> String {
    let mut shown = vec![facts(analysis), waterfall(analysis), causes(analysis)];
    if sections == Sections::All {
        shown.extend([curve(analysis), routing(analysis), shape(analysis)]);
    }
    shown.push(findings(analysis));
    shown.retain(|section| !section.is_empty());
    shown.join("\n").trim_end().to_owned()
}

fn facts(analysis: &Analysis) -> String {
    let numbers = &analysis.characterization;
    let span = match analysis.span_s {
        Some(span) if span >= 1.0 => format!(" over {}", duration(span)),
        _ => String::new(),
    };
    let users = numbers.users.as_ref().map(|users| format!(" of {}", counted(users.count, "user")));
    let facts = format!(
        "{}: {}{span}, {} ({}){}, {} in blocks of {}",
        one_line(&analysis.files.join(", ")),
        counted(numbers.requests, "request"),
        counted(numbers.sessions.count, "session"),
        analysis.info.sessions,
        users.unwrap_or_default(),
        counted(analysis.prompt_tokens(), "prompt token"),
        analysis.info.block_tokens,
    );
    let lines = std::iter::once(&facts).chain(&analysis.remarks);
    lines.map(|line| wrapped(line, "", COLUMNS) + "\n").collect()
}

fn findings(analysis: &Analysis) -> String {
    let numbered = analysis.headlines.iter().enumerate();
    let lines = numbered.map(|(index, said)| {
        let said = format!("{}. {said}", index + 1);
        wrapped(&said, "   ", COLUMNS) + "\n"
    });
    colour::heading("Findings") + "\n" + &lines.collect::<String>()
}

fn waterfall(analysis: &Analysis) -> String {
    let total = analysis.prompt_tokens().max(1);
    let mut rows = vec![cells(&["", "", "share", "tokens", "time", "money"])];
    for step in analysis.waterfall.iter().filter(|step| step.amount.tokens > 0) {
        let share = step.amount.tokens as f64 / total as f64;
        let (saved, shown) = match step.bucket.is_served() {
            true => (" saved", colour::hit(&percent(share))),
            false if step.bucket == Bucket::NeverSeen => ("", percent(share)),
            false => ("", colour::loss(&percent(share))),
        };
        rows.push(vec![
            format!("  {}", analysis.meaning(step.bucket)),
            bar(share),
            shown,
            thousands(step.amount.tokens),
            duration(step.amount.seconds) + saved,
            money_told(analysis, &step.amount),
        ]);
    }
    if analysis.currency.is_none() {
        rows.iter_mut().for_each(|row| drop(row.pop()));
    }
    let title =
        format!("{}: {}", colour::heading("Where the prompt tokens went"), analysis.played_on());
    let mut text = format!("{}\n{}", wrapped(&title, "  ", COLUMNS), aligned(&rows));
    let time = Some(("time", &analysis.seconds_from[..]));
    let money = analysis.money_from.map(|from| ("money", from));
    for (name, from) in time.into_iter().chain(money) {
        text += &(wrapped(&format!("  {name}: {from}"), "  ", COLUMNS) + "\n");
    }
    text
}

fn causes(analysis: &Analysis) -> String {
    if analysis.findings.is_empty() {
        return if analysis.has_texts() {
            "The analysis found no mistake in the prompts.\n".to_owned()
        } else {
            String::new()
        };
    }
    let mut text = colour::heading("Mistakes in prompts, and how to fix them") + "\n";
    for finding in &analysis.findings {
        let paid = match analysis.currency {
            Some(_) => format!(", {}", money_told(analysis, &finding.amount)),
            None => String::new(),
        };
        let title = format!(
            "  {} [{}]: {} of {}, {}{paid}",
            finding.title,
            finding.cause,
            counted(finding.amount.tokens, "token"),
            counted(finding.requests, "request"),
            duration(finding.amount.seconds),
        );
        text += &(wrapped(&title, "    ", COLUMNS) + "\n");
        if let Some(place) = &finding.place {
            text += &(wrapped(&format!("    at: {}", one_line(place)), "      ", COLUMNS) + "\n");
        }
        let fix = colour::fix(&format!("fix: {}", finding.fix));
        text += &(wrapped(&format!("    {fix}"), "      ", COLUMNS) + "\n");
        if let Some(saving) = finding.saving() {
            text += &(wrapped(&format!("    {saving}"), "    ", COLUMNS) + "\n");
        }
        if let Some(example) = &finding.example {
            let place = format!(
                "    example: request {} differs from {} at token {}",
                one_line(&example.request),
                one_line(&example.neighbour),
                thousands(example.token),
            );
            let (old, new) = (example.old.as_deref(), example.new.as_deref());
            text += &match (old, new) {
                (Some(old), Some(new)) => format!(
                    "{}\n      was {}\n      now {}\n",
                    wrapped(&place, "      ", COLUMNS),
                    quoted(old),
                    quoted(new)
                ),
                _ => {
                    let place = place + " (--show-text shows it)";
                    wrapped(&place, "      ", COLUMNS) + "\n"
                }
            };
        }
    }
    text + &wrapped(&format!("  {HIDDEN}"), "  ", COLUMNS) + "\n"
}

/// The start of a text in quotes, on one line.
fn quoted(text: &str) -> String {
    match text.chars().nth(EXAMPLE_CHARS) {
        None => format!("{text:?}"),
        Some(_) => {
            let start: String = text.chars().take(EXAMPLE_CHARS).collect();
            let quoted = format!("{start:?}");
            let shown: String = quoted.chars().take(EXAMPLE_CHARS + 1).collect();
            shown + "…\""
        }
    }
}

fn curve(analysis: &Analysis) -> String {
    let points = &analysis.characterization.curve;
    if points.is_empty() {
        return "Hit rate by cache size: 0 %, because no prefix comes twice\n".to_owned();
    }
    let every = points.len().div_ceil(CURVE_ROWS).max(1);
    let mut rows = vec![cells(&["  tokens", "", "hit rate", "of all hits", ""])];
    let ideal = &analysis.characterization.ideal;
    for (index, point) in points.iter().enumerate() {
        let is_knee = analysis.knee == Some(index);
        let is_last = index + 1 == points.len();
        if !is_knee && !is_last && !index.is_multiple_of(every) {
            continue;
        }
        let held = thousands(point.capacity_tokens) + &analysis.in_bytes(point.capacity_tokens);
        rows.push(vec![
            format!("  {held}"),
            bar(point.token_hit_rate),
            percent(point.token_hit_rate),
            percent(point.hits as f64 / ideal.hits.max(1) as f64),
            if is_knee { "<- knee".to_owned() } else { String::new() },
        ]);
    }
    format!(
        "{} (all requests simulated on one LRU cache); without a limit: {}\n{}",
        colour::heading("Hit rate by cache size"),
        percent(ideal.token_hit_rate),
        aligned(&rows)
    )
}

fn routing(analysis: &Analysis) -> String {
    let total = analysis.prompt_tokens().max(1) as f64;
    let routing = &analysis.routing;
    let row = |name: &str, tokens: u64| {
        let share = tokens as f64 / total;
        vec![format!("  {name}"), bar(share), percent(share), thousands(tokens)]
    };
    let mut rows = vec![cells(&["", "", "hit rate", "tokens"])];
    rows.push(row("prefix-aware", routing.precise_tokens));
    rows.push(row("random", routing.random_tokens));
    let mut text = match routing.replicas {
        1 => String::new(),
        _ if routing.precise_tokens + routing.random_tokens == 0 => String::new(),
        replicas => format!(
            "{}, all requests simulated one at a time on {replicas} replicas\n\
             (random: mean of {} runs)\n{}",
            colour::heading("Hit rate by routing"),
            routing.draws,
            aligned(&rows)
        ),
    };
    if let Some(tokens) = analysis.order_free_tokens {
        text += &format!(
            "Reuse at any position would add at most {} of the prompt tokens ({})\n",
            percent(tokens as f64 / total),
            thousands(tokens),
        );
    }
    text
}

fn shape(analysis: &Analysis) -> String {
    let numbers = &analysis.characterization;
    let spread = |name: &str, spread: &Spread, show: &dyn Fn(f64) -> String| {
        let values = [spread.mean, spread.p50, spread.p90, spread.p99, spread.max];
        let mut row = vec![format!("  {name}")];
        row.extend(values.map(|value| match spread.count {
            0 => "–".to_owned(),
            _ => show(value),
        }));
        row
    };
    let count = |value: f64| match value {
        small if small < 100.0 => format!("{small:.1}"),
        large => thousands(large as u64),
    };
    let mut rows = vec![cells(&["", "mean", "p50", "p90", "p99", "max"])];
    rows.push(spread("prompt tokens", &numbers.sizes.prompt_tokens, &count));
    rows.push(spread("requests per session", &numbers.sessions.requests, &count));
    if let Some(users) = &numbers.users {
        rows.push(spread("requests per user", &users.requests, &count));
    }
    if analysis.span_s.is_some() {
        let (reuse, life) = (&numbers.reuse.all.seconds, &numbers.lifespan.reused_s);
        rows.push(spread("time to reuse", reuse, &duration));
        rows.push(spread("lifetime of a reused block", life, &duration));
    }
    let mut text = format!("{}\n{}", colour::heading("Traffic"), aligned(&rows));
    let best = numbers.reuse.all.fits.fits.first();
    if let Some(best) = best.filter(|_| analysis.span_s.is_some()) {
        let parameters = best.parameters.iter();
        let shown: Vec<_> = parameters.map(|(name, value)| format!("{name} {value:.3}")).collect();
        text += &format!(
            "  best fit of the time to reuse: {} ({}), KS distance {}\n",
            best.model.name(),
            shown.join(", "),
            percent(best.ks),
        );
    }
    let next = &numbers.next_turn.all;
    if analysis.span_s.is_some() && next.followed + next.ended > 0 {
        text += &format!("  {}\n", next_turn(next));
    }
    text += &format!(
        "  blocks never used again: {}; all hits together need {}\n",
        percent(numbers.ideal.never_reused_share),
        counted(numbers.capacity.peak_blocks, "block"),
    );
    text
}

/// Describes the share of requests that another one of their session follows.
fn next_turn(next: &Next) -> String {
    let all = next.followed + next.ended + next.open;
    let share = next.followed as f64 / all.max(1) as f64;
    let mut text = format!("sessions continue after {} of requests", percent(share));
    if next.open > 0 && next.followed + next.ended > 0 {
        text += &format!(
            " ({} without the last {})",
            percent(next.p_next),
            counted(next.open, "request")
        );
    }
    text
}

fn cells(texts: &[&str]) -> Vec<String> {
    texts.iter().map(|text| (*text).to_owned()).collect()
}

fn bar(share: f64) -> String {
    let full = (share.clamp(0.0, 1.0) * BAR as f64).round() as usize;
    "█".repeat(full) + &"·".repeat(BAR - full)
}

fn money_told(analysis: &Analysis, amount: &Amount) -> String {
    match (&analysis.currency, amount.money) {
        (Some(currency), Some(amount)) => money(currency, amount),
        _ => "–".to_owned(),
    }
}
