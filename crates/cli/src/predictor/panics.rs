//! Panic messages are printed before anybody can catch the panic, and the standard library's own
//! quote the string that was sliced wrongly. Where prompts are handled, that would be a prompt.

use headstart_terminal::to_stderr;
use std::any::Any;

/// From now on a panic's message is printed only where it cannot hold text of a prompt: when it was
/// written down in the program, or on threads that know tokens only. Otherwise its place is.
pub(crate) fn keep_text_out_of_panics() {
    std::panic::set_hook(Box::new(|info| {
        let thread = std::thread::current();
        let name = thread.name().unwrap_or("a thread");
        let place = info.location().map(|at| format!(" at {at}"));
        let place = place.unwrap_or_default();
        let message = message(name, info.payload());
        to_stderr(&format!("{name} panicked{place}: {message}\n"));
    }));
}

fn message<'a>(thread: &str, payload: &'a (dyn Any + Send)) -> &'a str {
    // Engines see token ids; the main thread sees options.
    let is_textless = thread == "main" || thread.starts_with("replica-");
    let formatted = payload.downcast_ref::<String>().filter(|_| is_textless);
    let fixed = payload.downcast_ref::<&'static str>().copied();
    let shown = fixed.or(formatted.map(String::as_str));
    shown.unwrap_or("(its message is withheld: it may hold text of a prompt)")
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_was_formatted_is_shown_where_nobody_knows_text() {
        let check = |thread: &str, payload: Box<dyn Any + Send>, is_shown: bool| {
            let shown = message(thread, &*payload).contains("words");
            assert_eq!(shown, is_shown, "{thread}");
        };
        check("predictor", Box::new("words".to_owned()), false);
        check("tokio-runtime-worker", Box::new("words".to_owned()), false);
        check("predictor", Box::new("fixed words"), true);
        check("replica-1", Box::new("words".to_owned()), true);
        check("main", Box::new("words".to_owned()), true);
        check("main", Box::new(7), false);
    }
}
