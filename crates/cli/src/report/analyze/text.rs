//! The analysis for a terminal: sections with short bars.

use headstart_core::shown::one_line;
use headstart_trace::characterize::Spread;
use headstart_trace::characterize::report::Next;

use super::super::aligned;
use super::{Amount, Analysis, Kept, duration, percent, thousands};

/// Columns of a full bar.
const BAR: usize = 20;

/// Rows of the size curve that are shown.
const CURVE_ROWS: usize = 10;

/// All sections, without the last line's end.
pub(crate) fn text(analysis: &Analysis) -> String {
    let sections = [
        facts(analysis),
        headlines(analysis),
        waterfall(analysis),
        findings(analysis),
        curve(analysis),
        routing(analysis),
        shape(analysis),
    ];
    let there = sections.into_iter().filter(|section| !section.is_empty());
    there.collect::<Vec<_>>().join("\n").trim_end().to_owned()
}

fn facts(analysis: &Analysis) -> String {
    let numbers = &analysis.characterization;
    let span = match analysis.span_s {
        Some(span) if span >= 1.0 => format!(" over {}", duration(span)),
        _ => String::new(),
    };
    let users = numbers
        .users
        .as_ref()
        .map(|it| format!(" of {}", many(it.count, "user")));
    let mut facts = format!(
        "{}: {}{span}, {} ({}){}, {} in blocks of {}\n",
        one_line(&analysis.files.join(", ")),
        many(numbers.requests, "request"),
        many(numbers.sessions.count, "session"),
        analysis.info.sessions,
        users.unwrap_or_default(),
        many(analysis.prompt_tokens(), "prompt token"),
        analysis.info.block_tokens,
    );
    for remark in &analysis.remarks {
        facts += &format!("{remark}\n");
    }
    facts + &memory(analysis)
}

fn memory(analysis: &Analysis) -> String {
    let mib = |bytes: u64| thousands(bytes.div_ceil(1 << 20));
    let sum = |of: fn(&Kept) -> u64| analysis.kept.iter().map(of).sum();
    let peak = analysis.peak_bytes;
    let peak = peak.map(|bytes| format!(", {} MiB the whole process", mib(bytes)));
    let is_all = analysis.kept.iter().all(|kept| kept.lost.is_none());
    format!(
        "memory: {} MiB of at most {} MiB{}; {}\n",
        mib(sum(|kept| kept.bytes)),
        mib(sum(|kept| kept.bytes_max)),
        peak.unwrap_or_default(),
        match is_all {
            true => "no bound changes a figure shown",
            false => "bounds were met, see above",
        },
    )
}

/// `1 request`, `2,000 requests`.
fn many(number: u64, thing: &str) -> String {
    let plural = if number == 1 { "" } else { "s" };
    format!("{} {thing}{plural}", thousands(number))
}

fn headlines(analysis: &Analysis) -> String {
    let numbered = analysis.headlines.iter().enumerate();
    numbered
        .map(|(index, said)| wrapped(index + 1, said))
        .collect()
}

/// A numbered sentence in lines of at most 96 columns; a number stays with its `%`.
fn wrapped(number: usize, sentence: &str) -> String {
    let mut lines = vec![format!(" {number}.")];
    let sentence = sentence.replace(" %", "\u{a0}%");
    for word in sentence.split(' ') {
        let last = lines.last_mut().expect("never empty");
        if last.chars().count() + word.chars().count() < 96 {
            *last += &format!(" {word}");
        } else {
            lines.push(format!("    {word}"));
        }
    }
    lines.join("\n").replace('\u{a0}', " ") + "\n"
}

fn waterfall(analysis: &Analysis) -> String {
    let total = analysis.prompt_tokens().max(1);
    let mut rows = vec![cells(&["", "", "share", "tokens", "time", "money"])];
    for step in analysis
        .waterfall
        .iter()
        .filter(|step| step.amount.tokens > 0)
    {
        let share = step.amount.tokens as f64 / total as f64;
        let saved = if step.bucket.is_served() {
            " saved"
        } else {
            ""
        };
        rows.push(vec![
            format!("  {}", analysis.meaning(step.bucket)),
            bar(share),
            percent(share),
            thousands(step.amount.tokens),
            duration(step.amount.seconds) + saved,
            money(analysis, &step.amount),
        ]);
    }
    if analysis.currency.is_none() {
        rows.iter_mut().for_each(|row| drop(row.pop()));
    }
    format!(
        "Where the prompt tokens went: {}\n{}  time: {}\n",
        analysis.played_on(),
        aligned(&rows),
        analysis.seconds_from,
    )
}

fn findings(analysis: &Analysis) -> String {
    if analysis.findings.is_empty() {
        return String::new();
    }
    let mut text = "What made it be computed again, and what to do\n".to_owned();
    for finding in &analysis.findings {
        let paid = match analysis.currency {
            Some(_) => format!(", {}", money(analysis, &finding.amount)),
            None => String::new(),
        };
        text += &format!(
            "  {} [{}]: {} of {}, {}{paid}\n    {}\n",
            finding.title,
            finding.cause,
            many(finding.amount.tokens, "token"),
            many(finding.requests, "request"),
            duration(finding.amount.seconds),
            finding.fix,
        );
        if let Some(example) = &finding.example {
            text += &format!(
                "    for example request {} against {}, from token {}",
                one_line(&example.request),
                one_line(&example.neighbour),
                thousands(example.token),
            );
            text += &match (&example.old, &example.new) {
                (Some(old), Some(new)) => format!(": {old:?} became {new:?}\n"),
                _ => " (--show-text shows the text)\n".to_owned(),
            };
        }
    }
    text
}

fn curve(analysis: &Analysis) -> String {
    let points = &analysis.characterization.curve;
    if points.is_empty() {
        return "A cache of another size would have served nothing: no prefix comes twice\n"
            .to_owned();
    }
    let every = points.len().div_ceil(CURVE_ROWS).max(1);
    let mut rows = vec![cells(&["  tokens held", "", "hit rate", "of all", ""])];
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
            if is_knee {
                "<- knee".to_owned()
            } else {
                String::new()
            },
        ]);
    }
    format!(
        "What one cache of another size would have served (LRU); an infinite one: {}\n{}",
        percent(ideal.token_hit_rate),
        aligned(&rows)
    )
}

fn routing(analysis: &Analysis) -> String {
    let total = analysis.prompt_tokens().max(1) as f64;
    let routing = &analysis.routing;
    let row = |name: &str, tokens: u64| {
        let share = tokens as f64 / total;
        vec![
            format!("  {name}"),
            bar(share),
            percent(share),
            thousands(tokens),
        ]
    };
    let mut rows = vec![cells(&["", "", "found", "tokens"])];
    rows.push(row("by what they share", routing.precise_tokens));
    rows.push(row("anywhere, by lot", routing.random_tokens));
    let mut text = match routing.replicas {
        1 => String::new(),
        _ if routing.precise_tokens + routing.random_tokens == 0 => String::new(),
        replicas => format!(
            "How requests reach {replicas} replicas, played one after the other (by lot: the \
             mean of {} draws)\n{}",
            routing.draws,
            aligned(&rows)
        ),
    };
    if let Some(tokens) = analysis.order_free_tokens {
        text += &format!(
            "Reuse without order would add {} of the prompt tokens ({}), at most\n",
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
    let mut rows = vec![cells(&["", "mean", "median", "90 %", "99 %", "most"])];
    rows.push(spread(
        "prompt tokens",
        &numbers.sizes.prompt_tokens,
        &count,
    ));
    rows.push(spread(
        "requests of a session",
        &numbers.sessions.requests,
        &count,
    ));
    if let Some(users) = &numbers.users {
        rows.push(spread("requests of a user", &users.requests, &count));
    }
    if analysis.span_s.is_some() {
        let (reuse, life) = (&numbers.reuse.all.seconds, &numbers.lifespan.reused_s);
        rows.push(spread("until reuse", reuse, &duration));
        rows.push(spread("life of a reused block", life, &duration));
    }
    let mut text = format!("What the traffic looks like\n{}", aligned(&rows));
    let best = numbers.reuse.all.fits.fits.first();
    if let Some(best) = best.filter(|_| analysis.span_s.is_some()) {
        let parameters = best.parameters.iter();
        let shown: Vec<_> = parameters
            .map(|(name, value)| format!("{name} {value:.3}"))
            .collect();
        text += &format!(
            "  reuse times fit best: {} ({}), largest distance {}\n",
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
        "  blocks never used again: {}; all hits need room for {} at once\n",
        percent(numbers.ideal.never_reused_share),
        many(numbers.capacity.peak_blocks, "block"),
    );
    text
}

/// How many requests are followed by another one of their session.
fn next_turn(next: &Next) -> String {
    let all = next.followed + next.ended + next.open;
    let share = next.followed as f64 / all.max(1) as f64;
    let mut text = format!("another request of the session follows: {}", percent(share));
    if next.open > 0 && next.followed + next.ended > 0 {
        text += &format!(
            " ({} without {} that came too late to say)",
            percent(next.p_next),
            many(next.open, "last one")
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

fn money(analysis: &Analysis, amount: &Amount) -> String {
    match (&analysis.currency, amount.money) {
        (Some(currency), Some(money)) => format!("{currency} {money:.2}"),
        _ => "–".to_owned(),
    }
}
