//! Every ordering point of the logs by name, so that a test can leave one out.

terrace_durable::steps! {
    RecordWriteBack, "a record is written back ..";
    RecordFence, ".. and durable before the mapping table leads to it and anyone is told";
    RecordChecksum, "replay takes only records that match their checksum";
    RecordStamp, "replay takes only records of the segment's present use";
    HeadWriteBack, "the head of a segment is written back before the fence of the first record in it";
    SplitWhole, "both halves of a split leaf are one record";
    CopyFirst, "what the collector keeps of a segment is durable elsewhere before the segment is freed";
    FreeWriteBack, "the end of a segment's use is written back ..";
    FreeFence, ".. and durable before the segment is used again, and before a later one is freed";
    LoadMark, "what is being loaded does not count before all of it is there";
    DeadMark, "that a leaf is no more stays in its log as long as its entries are in another";
}
