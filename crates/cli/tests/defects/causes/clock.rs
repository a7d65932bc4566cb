//! Times that move on.

use crate::clean;
use crate::defect::{Defect, insert_before};
use crate::log::{Form, MONDAY_NINE_S, Mark, date, rfc3339, time};

const DAYS: [&str; 7] =
    ["Monday", "Tuesday", "Wednesday", "Thursday", "Friday", "Saturday", "Sunday"];
const MONTHS: [&str; 4] = ["January", "February", "March", "April"];

/// As `Tuesday, 4 March 2025`.
fn long_date(at_s: u64) -> String {
    let (year, month, day, weekday) = date(at_s);
    format!("{}, {day} {} {year}", DAYS[weekday], MONTHS[month - 1])
}

pub(super) fn defects() -> Vec<Defect> {
    let mut all = in_the_middle();
    all.extend(at_the_front());
    all
}

fn at_the_front() -> Vec<Defect> {
    vec![
        Defect::new(
            "clock",
            "RFC 3339 with milliseconds first",
            clean::desk(21),
            |request, prose| {
                let now =
                    rfc3339(request.at_s).replace('Z', &format!(".{:03}Z", prose.rng.below(1000)));
                request.system().insert_str(0, &format!("Current time: {now}\n\n"));
                Mark::Text(now)
            },
        ),
        Defect::new("clock", "half past nine and the zone", clean::owners(22), |request, _| {
            let (year, month, day, weekday) = date(request.at_s);
            let (hour, minute, second) = time(request.at_s);
            let half = if hour < 12 { "AM" } else { "PM" };
            let hour = (hour + 11) % 12 + 1;
            let now = format!(
                "{}, {} {day}, {year}, {hour:02}:{minute:02}:{second:02} {half} +00:00",
                DAYS[weekday],
                MONTHS[month - 1]
            );
            request.system().insert_str(0, &format!("Current date and time: {now}\n"));
            Mark::Text(now)
        }),
        Defect::new(
            "clock",
            "a date and a time before a text prompt",
            clean::few_shot(23),
            |request, _| {
                let now = rfc3339(request.at_s).replace('T', " ").replace('Z', "");
                let prompt = request.body["prompt"].as_str().expect("text");
                request.body["prompt"] = format!("Date: {now}\n{prompt}").into();
                Mark::Text(now)
            },
        ),
        Defect::new(
            "clock",
            "compact, as in the names of files",
            clean::passages(24),
            |request, _| {
                let now = rfc3339(request.at_s).replace(['-', ':', 'Z'], "").replace('T', "-");
                let head = format!("handbook snapshot {now} / house style 7\n\n");
                request.system().insert_str(0, &head);
                Mark::Text(now)
            },
        ),
    ]
}

fn in_the_middle() -> Vec<Defect> {
    vec![
        Defect::new(
            "clock",
            "weekday, day and minute in a sentence",
            clean::long_chats(25),
            |request, _| {
                let (hour, minute, _) = time(request.at_s);
                let today = long_date(request.at_s).replacen(',', "", 1);
                let now = format!("{today}, {hour:02}:{minute:02}");
                insert_before(request.system(), "Query first", &format!("Today is {now}. "));
                Mark::Text(now)
            },
        ),
        Defect::new("clock", "unix seconds among facts", clean::agents(26), |request, _| {
            let now = request.at_s.to_string();
            insert_before(request.system(), "</env>", &format!("Now: {now}\n"));
            Mark::Text(now)
        }),
        Defect::new(
            "clock",
            "folder and date as JavaScript writes it",
            clean::thinking_agents(27).written_as(Form::LiteLlm),
            |request, _| {
                let (year, month, day, weekday) = date(request.at_s);
                let (hour, minute, second) = time(request.at_s);
                let now = format!(
                    "{} {} {day:02} {year} {hour:02}:{minute:02}:{second:02} GMT+0000",
                    &DAYS[weekday][..3],
                    &MONTHS[month - 1][..3]
                );
                let line = format!("Today's date: {now}\n");
                insert_before(request.system(), "Platform: linux", &line);
                Mark::Text(now)
            },
        ),
        Defect::new(
            "clock",
            "the minute in a tool's description",
            clean::desk(28),
            |request, _| {
                let (hour, minute, _) = time(request.at_s);
                let now = format!("{hour:02}:{minute:02}");
                let told = format!("Says where a parcel was last scanned. It is {now} in London.");
                request.tools()[1]["function"]["description"] = told.into();
                Mark::Text(now)
            },
        ),
        days(),
    ]
}

/// Only the day, but people stay for many.
fn days() -> Defect {
    let mut log = clean::reasoning(29);
    for request in &mut log.requests {
        request.at_s = MONDAY_NINE_S + (request.at_s - MONDAY_NINE_S) * 500;
    }
    Defect::new("clock", "the day, over three weeks", log, |request, _| {
        let today = long_date(request.at_s);
        let system = request.system();
        *system = system.replace("Monday, 3 March 2025", &today);
        Mark::Text(today)
    })
}
