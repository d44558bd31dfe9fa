//! Every ordering point of the logs by name, so that a test can leave one out.

terrace_durable::steps! {
    RecordWriteBack, "a record is written back ..";
    RecordFence, ".. and durable before the mapping table leads to it and anyone is told";
    RecordChecksum, "replay takes only records that match their checksum";
    RecordStamp, "replay takes only records of the segment's present use";
    HeadWriteBack, "the head of a segment is written back ..";
    HeadFence, ".. and durable before a record is stored in it, so that no use's number is given twice";
    SplitWhole, "both halves of a split leaf are one record";
    CopyFirst, "what the collector keeps of a segment is durable elsewhere before the segment is freed";
    FreeWriteBack, "the end of a segment's use is written back ..";
    FreeFence, ".. and durable before a later one of its log is freed";
    GrownWriteBack, "segments that come into use say that they are free: that is written back ..";
    GrownFence, ".. and durable before the memory in use ends behind them";
    LoadMark, "what is being loaded does not count before all of it is there";
    DeadMark, "that a leaf is no more stays in its log as long as its entries are in another";
}
