//! Results of the libraries, as tables, sentences, JSON, CSV and HTML pages.
//!
//! | module | renders |
//! |---|---|
//! | [`analyze`] | where the prompt tokens of a log went, and what would avoid it |
//! | [`calibrate`] | a cost model and how well it fits measured times |
//! | [`replay`] | hit rates by eviction policy and capacity |
//! | [`fleet`] | routing strategies, simulated or measured |
//! | [`plan`] | what each size of a lower tier saves |
//! | [`train`] | a trained predictor and its scores |
//!
//! A renderer takes a finished result. It computes shares and sentences, and no result; it knows no
//! command, no option and no file.

/// A JSON object of fields of one value, under their own names and in this order. A name with a
/// function behind it, as in `all(hits)`, stands for what the function makes of the field.
macro_rules! fields {
    ($of:expr => $($name:ident $(($shown:expr))?),+ $(,)?) => {{
        let of = &$of;
        let mut object = serde_json::Map::new();
        $(
            let value = fields!(@ of.$name $(, $shown)?);
            object.insert(stringify!($name).to_owned(), serde_json::json!(value));
        )+
        serde_json::Value::Object(object)
    }};
    (@ $field:expr) => { &$field };
    (@ $field:expr, $shown:expr) => { $shown(&$field) };
}

pub mod analyze;
pub mod calibrate;
pub mod fleet;
pub mod plan;
pub mod replay;
pub mod train;
