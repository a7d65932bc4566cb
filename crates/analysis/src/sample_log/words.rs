//! Sentences made up from lists of phrases and a seed.

use headstart_core::Rng;

const WHO: [&str; 24] = [
    "the harbour office",
    "a night courier",
    "the records desk",
    "every new member",
    "the repair team",
    "a returning guest",
    "the billing service",
    "our northern depot",
    "the garden council",
    "a field engineer",
    "the reading room",
    "the ferry crew",
    "the quality board",
    "a visiting clerk",
    "the weather station",
    "the seed library",
    "the lending counter",
    "an apprentice",
    "the tram depot",
    "the duty manager",
    "a market stall",
    "the clock maker",
    "the print shop",
    "the orchard keeper",
];

const DOES: [&str; 20] = [
    "confirms",
    "forwards",
    "postpones",
    "measures",
    "returns",
    "labels",
    "restores",
    "inspects",
    "registers",
    "collects",
    "exchanges",
    "approves",
    "archives",
    "compares",
    "repairs",
    "schedules",
    "weighs",
    "translates",
    "refunds",
    "replaces",
];

const WHAT: [&str; 28] = [
    "the blue form",
    "a sealed parcel",
    "the monthly figures",
    "an unpaid invoice",
    "the spare bearings",
    "a signed receipt",
    "the tide table",
    "two copies of the permit",
    "the missing label",
    "a complaint",
    "the seating plan",
    "an open ticket",
    "the old catalogue",
    "a loan of three weeks",
    "the water meter",
    "a broken hinge",
    "the visitor list",
    "the delivery note",
    "a reserved table",
    "the fuel report",
    "an address change",
    "the winter schedule",
    "a lost umbrella",
    "the safety notice",
    "a second quotation",
    "the sample box",
    "a double booking",
    "the annual survey",
];

const WHEN: [&str; 18] = [
    "before noon",
    "within two working days",
    "after the second reminder",
    "at the front desk",
    "unless the customer objects",
    "when both keys are present",
    "without a further fee",
    "on the first Monday",
    "as soon as the lights are on",
    "in the order of arrival",
    "only with a written note",
    "if the amount is below fifty",
    "by telephone",
    "in plain words",
    "together with the photograph",
    "at the end of the shift",
    "twice a season",
    "once the scales are clean",
];

/// One sentence.
pub(super) fn sentence(rng: &mut Rng) -> String {
    let who = pick(rng, &WHO);
    // All phrases begin with an ASCII letter, so one byte is one letter.
    let (first, rest) = who.split_at(1);
    let (does, what, when) = (pick(rng, &DOES), pick(rng, &WHAT), pick(rng, &WHEN));
    format!("{}{rest} {does} {what} {when}.", first.to_uppercase())
}

/// Generates a text of `sentences` sentences.
pub(super) fn text(rng: &mut Rng, sentences: usize) -> String {
    let sentences: Vec<_> = (0..sentences).map(|_| sentence(rng)).collect();
    sentences.join(" ")
}

/// Generates a user's question.
pub(super) fn question(rng: &mut Rng) -> String {
    let (who, does, what) = (pick(rng, &WHO), pick(rng, &DOES), pick(rng, &WHAT));
    let number = 100 + rng.below(900);
    format!("Please tell me when {who} {does} {what} for case {number}, and what I must do.")
}

/// A name for a tool: a verb and a thing.
pub(super) fn tool(rng: &mut Rng) -> String {
    let what = pick(rng, &WHAT).rsplit(' ').next().unwrap_or("thing");
    format!("{}_{what}", pick(rng, &DOES))
}

fn pick<'w>(rng: &mut Rng, words: &[&'w str]) -> &'w str {
    words[rng.below(words.len())]
}
