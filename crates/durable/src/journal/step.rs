//! Every ordering point of a journal by name, so that a test can leave one out.

crate::steps! {
    RecordSync, "a record is durable before anybody is told";
    RecordChecksum, "a record counts only if it matches its checksum";
    RecordSession, "what an earlier opening left behind the end does not follow what a later one wrote";
    RecordGeneration, "records of the state before do not follow those of this one";
    StateSync, "a state is durable before the mark names it";
    MarkSync, "the mark is durable before the log begins anew";
}
