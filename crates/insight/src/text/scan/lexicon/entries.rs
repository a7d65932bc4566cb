//! The entries: words with one space between.

use crate::text::word::Class;

/// Entries of one class.
pub(super) struct LexiconGroup {
    pub(super) class: Class,
    /// Whether they must begin with a capital: `may` and `sat` are other words more often.
    pub(super) capital: bool,
    pub(super) words: &'static str,
}

const fn any(class: Class, words: &'static str) -> LexiconGroup {
    LexiconGroup { class, capital: false, words }
}

const fn capital(class: Class, words: &'static str) -> LexiconGroup {
    LexiconGroup { class, capital: true, words }
}

/// The entries by class. Of months and days in other languages, what no other word is.
pub(super) static GROUPS: &[LexiconGroup] = &[
    capital(Class::Month, "jan feb mar apr may jun jul aug sep sept oct nov dec march"),
    capital(Class::Weekday, "mon tue tues wed thu thur thurs fri sat sun"),
    any(
        Class::Month,
        "january february april june july august september october november december januar \
         februar märz juni juli oktober dezember janvier février mars avril mai juin juillet \
         août septembre octobre novembre décembre enero febrero marzo abril mayo junio julio \
         agosto septiembre octubre noviembre diciembre janeiro fevereiro março maio junho \
         julho setembro outubro novembro dezembro gennaio febbraio aprile maggio giugno \
         luglio settembre ottobre dicembre januari februari maart augustus января февраля \
         марта апреля мая июня июля августа сентября октября ноября декабря",
    ),
    any(
        Class::Weekday,
        "monday tuesday wednesday thursday friday saturday sunday montag dienstag mittwoch \
         donnerstag freitag samstag sonntag lundi mardi mercredi jeudi vendredi samedi \
         dimanche lunes martes miércoles jueves viernes sábado domingo lunedì martedì \
         mercoledì giovedì venerdì sabato domenica maandag dinsdag woensdag donderdag vrijdag \
         zaterdag zondag вторник среда четверг пятница суббота",
    ),
    any(Class::DayPart, "morning afternoon evening night tonight noon midnight"),
    any(
        Class::Spelled,
        "one two three four five six seven eight nine ten eleven twelve thirteen fourteen \
         fifteen sixteen seventeen eighteen nineteen twenty thirty forty fifty half quarter \
         past first third fourth fifth sixth seventh eighth ninth tenth eleventh twelfth \
         thirteenth fourteenth fifteenth sixteenth seventeenth eighteenth nineteenth \
         twentieth thirtieth",
    ),
    any(
        Class::Zone,
        "am pm utc gmt cet cest eet eest wet est edt cst cdt mst mdt pst pdt bst ist jst aest \
         aedt",
    ),
    any(
        Class::TimeUnit,
        "second seconds minute minutes hour hours day days week weeks month months ms h hr \
         hrs min mins sec secs uhr heure heures hora horas",
    ),
    any(
        Class::TimeLabel,
        "date time datetime today heute now timestamp clock yesterday tomorrow timezone \
         uptime epoch unixtime current_time current_date local_time ts datum uhrzeit fecha \
         aujourd hoy oggi vandaag сегодня",
    ),
    any(
        Class::RequestLabel,
        "request requestid request_id req req_id reqid nonce trace traceid trace_id span \
         span_id spanid correlation correlationid correlation_id run run_id runid cch seed \
         random session session_id sessionid uuid guid invocation signature salt cache_buster \
         cachebuster buster traceparent idempotency conversation_id x_request_id message_id \
         call_id tmp pid port hostname container temp scratch sandbox workdir thread_id hash \
         digest token cc_version billing ticket ticket_id conversation chat chat_id \
         interaction transaction txn counter seq sequence job job_id task_id etag ip ulid \
         cuid rid sid random_seed rand_seed rng_seed",
    ),
    any(Class::IdLabel, "id ids key ref reference identifier header version build"),
    any(
        Class::ToolLabel,
        "tools functions parameters properties input_schema inputschema plugins skills \
         actions commands apis",
    ),
    any(
        Class::TypeLabel,
        "string integer boolean number array object enum float int str bool arg args argument \
         arguments param params returns required optional",
    ),
    any(
        Class::DocumentLabel,
        "documents document sources source context passages passage excerpts excerpt articles \
         article snippets snippet results chunks chunk references retrieved knowledge pages \
         records notes",
    ),
    any(
        Class::RecordLabel,
        "title text content url link summary abstract author section description name \
         category price rating review product headline subject score file path",
    ),
    any(
        Class::Role,
        "user assistant human system model ai bot developer gpt instruction response \
         observation tool ipython customer agent",
    ),
];
