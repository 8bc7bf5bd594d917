"""Every bound of the package, with the reason beside it. No imports from the package."""

from __future__ import annotations

BATCH_HEADER_BYTES = 61
"""RecordBatch v2: everything before the records."""

BATCH_BYTES_MAX = 1 << 30
"""A batch that declares more is broken: Kafka's own lengths are int32 and no client sends near this."""

DECOMPRESSED_RATIO = 16
"""foldlog.max.decompressed.bytes where it is not set, in times of max.message.bytes: what is sent in a batch seldom
shrinks to less than a tenth, and a batch that does is split by its producer and sent again."""

DECOMPRESSED_BYTES_MIN = 1 << 20
"""What foldlog.max.decompressed.bytes is at least: where max.message.bytes is small, a megabyte harms nobody."""

DECOMPRESSED_BYTES_MAX = 64 << 20
"""What a reader expands of one batch unless its topic allows more: four times what a topic takes by default, so that
what was stored under other settings is still read. A codec makes a thousand bytes of one, and whoever reads pays."""

DECODED_BYTES = 32 << 20
"""What one slice of the log may expand to, and one batch more, before its records are handed out: a slice of 1 MiB that
was compressed well holds a gigabyte."""

QUICK_DECOMPRESSED_BYTES_MAX = 2 << 20
"""What an append that must not wait opens to check, in a millisecond or two: twice what clients put into a batch. More
is left to one that may wait."""

QUICK_DECOMPRESSED_RATIO = 32
QUICK_DECOMPRESSED_BYTES_MIN = 64 << 10
"""And so many times its own size, if that is less: who makes others wait for a look has sent something for it."""

QUICK_RECORDS_MAX = 1000
"""Records that such an append looks at one by one, where a topic limits how old they may be, or one is refused."""

SEGMENT_BYTES_MIN = 1 << 10
"""Small enough for tests and demonstrations that want to see a roll."""

POSITION_MAX = (1 << 31) - 1
"""Index entries hold positions and relative offsets in 32 bits, and Kafka reads them signed: roll before that."""

READ_CHUNK_BYTES = 1 << 20
"""One pread: large enough to amortise the call, small enough that CRC and decoding find it in L2 cache."""

OPEN_FILES_MAX = 512
"""Open sealed segments per log: half of the usual soft limit of 1024, the rest is the user's."""

DESCRIPTORS_MAX = 65_536
"""What a process may raise its own soft limit on descriptors to, where it needs to and the hard limit allows."""

DESCRIPTORS_LEFT_BY_FILES = 64
"""Of the limit on descriptors, what a log leaves to the connections of its process; a quarter where that is less."""

DESCRIPTORS_LEFT_BY_CONNECTIONS = 16
"""What a broker's connections leave: to scrapes, health checks, and files that are opened for a moment."""

SYNC_THREADS = 8
"""100 dirty partitions: 18 ms one after the other, 5.5 ms on 16 threads; eight gives most of that."""

JOURNAL_ENABLED = True
"""Whether logs have a journal unless they are told otherwise."""

JOURNAL_ENTRY_BYTES_MAX = 256 << 10
"""Appends of so many bytes sync their partition: twice written, they would cost the disk more than the journal saves
(16 KB: 0.12 ms beside 0.18; 256 KB: 0.22 beside 0.51; 1 MB: 0.6 beside 0.8, and then the same bytes once more)."""

JOURNAL_SMALL_ENTRY_BYTES = 32 << 10
"""Larger entries, of several partitions, go into one commit only up to JOURNAL_ENTRY_BYTES_MAX together; the others
sync their partitions (64 KB to each of 100 partitions in turn: 0.8 of the speed without a journal, all in it)."""

JOURNAL_ALONE_ASKS = 64
JOURNAL_ALONE_BYTES = 128 << 10
"""A partition that asks so often in a row, while no other does, and now with so many bytes, syncs its file: it is one
sync either way, and nothing is written twice. With less the journal is quicker by itself (one partition on a busy
machine, beside syncs of its file: 16 KB with five requests in flight 1.4x, 4 KB with 64 in flight 0.9x)."""

JOURNAL_COMMIT_BYTES_MAX = 2 << 20
"""What one commit of the journal takes from all partitions together, and at most one entry more; the rest goes into
the next. Bounds how long the first of them waits for the bytes of the others. The smallest file holds one."""

JOURNAL_BEGIN_SYNCS = 256
"""Small syncs after which a directory gets a journal: most that are opened for a moment never do."""

JOURNAL_FIRST_BYTES = 4 << 20
"""Size of the first two journal files, zeroed in milliseconds; once one was full, larger ones take their place."""

JOURNAL_FILE_BYTES = 32 << 20
"""Size of the largest: at 100 MB/s of small appends it lasts longer than the syncs that release the one before it. An
open after a crash replays two of them: two tenths of a second."""

JOURNAL_FILES_MAX = 16
"""How many there may be. Where none is free, appends sync their partition."""

JOURNAL_ZERO_BYTES = 512 << 10
"""How much of a new journal file is written and synced at a time: syncs of others wait for what is on its way."""

JOURNAL_ZERO_PAUSES = 2
"""How many times as long as that took nothing more of the file is written."""

CHECKPOINT_SYNC_MS = 1000
"""How old the checkpoint on disk may be: bounds what recovery rescans after a power cut."""

SECTOR_BYTES = 512
"""What a disk writes whole. A checkpoint slot never shares a sector with another partition's."""

COMPACTION_KEYS_MAX = 4_000_000
"""Keys of the key map: 24 bytes each and a third more for free slots, so 128 MB for each thread that compacts; more
keys take another pass."""

COMPACTION_THREADS = 2
COMPACTION_THREADS_MAX = 64
"""log.cleaner.threads: a topic that takes hours leaves a thread for the others. What the log keeps for groups has one
more, of its own. Kafka's default is 1."""

COMPACTION_SAMPLE_MAX = 256
"""Records that compaction left out of a rewritten segment, and whose newer ones are looked up in the log before it
takes its place: a few milliseconds. A key map that confuses one key in a hundred is found out in 9 of 10 segments."""

COMPACTION_SAMPLE_MIN = 16
COMPACTION_SAMPLE_SHARE = 2048
"""In a small segment fewer: one for so many that were left out, and at least the first of these two, since a look-up
takes as long as rewriting some hundred records."""

COMPACTION_SAMPLE_KEY_BYTES_MAX = 16 * 1024
"""A longer key is not among them: they are kept whole, so 4 MB at most."""

TOPIC_NAME_CHARS_MAX = 249
"""Kafka's limit: with '-<partition>' it stays within a file name."""

FILE_NAME_CHARS_MAX = 255
"""What every file system in use takes; a deleted topic's long name is cut to leave room for its id."""

PRODUCER_ID_BLOCK = 1000
"""Producer ids reserved with one write, Kafka's number: what a crash wastes, of 2^63."""

PARTITIONS_MAX = 10_000
"""Per topic: beyond this a typing error is likelier than a wish."""

KAFKA_PARTITIONS_MAX = 1_000_000
"""Of a topic in a directory of Kafka's: each up to the highest takes 8 bytes, held there or not. More than a cluster of
Kafka's has in all its topics; a number beyond it is a date or a typing error in the name of a directory."""

PARTITIONS_OF_ALL_MAX = 200_000
"""Of a directory: each has a slot in the checkpoint, an entry in the catalog, which is written whole at each change,
and a directory with files. As many as Kafka's operators plan for in a cluster."""

TOPIC_SETTINGS_BYTES_MAX = 4096
"""Names and values of what one topic sets itself. All settings at their longest numbers take 1.5 KB; the
rest is for the two lists of throttled replicas, which do nothing here and could have the 32 KB of a string in Kafka."""

TOPIC_SETTINGS_OF_ALL_BYTES_MAX = 4 << 20
"""Names and values of what all topics of a directory set: they are in memory, and in the catalog, which is written
whole at each change. Twenty thousand topics with eight settings each; written in some hundredths of a second."""

DYNAMIC_SETTINGS_BYTES_MAX = 1 << 20
"""Of all settings that were changed while a broker ran, in one file that is written whole at each change."""

TELEMETRY_CLIENTS_MAX = 1000
"""Clients whose pushed metrics are remembered; as many as a scrape should name."""

TELEMETRY_VALUES_MAX = 200
"""Of one client: librdkafka has 30 metrics, Java's clients a few for each broker and partition."""

TELEMETRY_VALUES_OF_ALL_MAX = 20_000
"""Of all clients: each is a line of every scrape, some 200 bytes."""

TELEMETRY_TEXT_BYTES_MAX = 200
"""Of a metric's name or attribute; the rest is cut off."""

TELEMETRY_DECOMPRESSED_BYTES_MAX = 8 << 20
"""Of one push: a few kilobytes can hold a gigabyte."""

TELEMETRY_SILENT_MS = 60_000
"""How long a silent client is remembered at least, as in Kafka; else for three of its intervals."""

AUTO_CREATED_TOPICS_MAX = 100
"""Topics that one Metadata request makes, some hundredths of a second each; the others are said to have no leader yet,
and clients ask again. A subscription names a few."""

PRODUCER_IDS_MAX = 20_000
"""Producers that a partition remembers, about half a kilobyte each. A thousand programs that start anew every hour make
24,000 in the day for which each is remembered."""

PRODUCER_IDS_OF_ALL_MAX = 200_000
"""Producers that all partitions of a directory remember, each counted where it wrote: a hundred megabytes. Two thousand
programs that each write to a hundred partitions."""

PRODUCERS_COUNT_MS = 1000
"""How often all are counted anew, and those let go that are silent, while there are as many as may be."""

PRODUCER_IDLE_MS = 15 * 60 * 1000
"""How long a producer has to be silent before another may take its place: what it sent can come again for as long as
delivery.timeout.ms, two minutes by default."""

PARTITIONS_PER_REQUEST_MAX = 10_000
"""What one request over the network may make: about ten seconds of work. Kafka's controller has the same bound."""

READER_POLL_MIN_MS = 1
READER_POLL_MAX_MS = 20
"""A reading process looks at the checkpoint this often; it backs off from the first to the second while idle."""

OFFSET_METADATA_BYTES_MAX = 4096
"""offset.metadata.max.bytes, Kafka's default: the text beside a committed offset is a note, not a store."""

COMMITTED_OFFSETS_BYTES_MAX = 256 << 20
"""Committed offsets of all groups, in memory: a million without a note of their own. Beyond it, commits that add to
them wait until others have expired or are deleted."""

OFFSETS_RETENTION_MS = 7 * 24 * 3600 * 1000
"""offsets.retention.minutes, Kafka's default: how long an empty group's committed offsets are kept."""

GROUP_MEMBERS_MAX = 1000
"""group.max.size. Each rebalance answers every member, and the leader gets everyone's metadata."""

GROUP_PENDING_MEMBERS_MAX = 1000
"""Ids handed out (KIP-394) and not used yet: a client that never comes back costs an entry until it expires."""

GROUPS_MAX = 100_000
"""Groups in memory, a few kilobytes each at least: beyond this somebody is making up names."""

GROUP_DEATHS_MAX = 1000
"""Groups of which is remembered that their last member timed out: they are a problem until somebody joins again."""

GROUP_PROTOCOLS_MAX = 32
"""Assignors one member may offer; Kafka's clients offer one to three."""

MEMBER_METADATA_BYTES_MAX = 1 << 20
"""One member's join metadata, all protocols together, and its assignment: 10,000 partitions take about 100 KB."""

GROUP_METADATA_BYTES_MAX = 8 << 20
"""A group's join metadata, and its assignments: each is written as part of one record of __consumer_offsets."""

GROUPS_METADATA_BYTES_MAX = 64 << 20
"""Join metadata and assignments of all groups together: a thousand groups of a usual size take a tenth of it. Beyond it
nobody joins who would add to it; who is a member already stays one."""

NEW_MEMBER_JOIN_TIMEOUT_MS = 5 * 60 * 1000
"""How long a new member's first join may be parked: its id is not known to it yet, so it cannot heartbeat."""

TRANSACTION_TIMEOUT_MAX_MS = 15 * 60 * 1000
"""transaction.max.timeout.ms, Kafka's default: readers of committed records wait for an open transaction that long."""

TRANSACTIONAL_ID_EXPIRATION_MS = 7 * 24 * 3600 * 1000
"""transactional.id.expiration.ms, Kafka's default: how long an id without an open transaction is kept after its last
change."""

TRANSACTIONAL_ID_EXPIRY_CHECK_MS = 3600 * 1000
"""transaction.remove.expired.transaction.cleanup.interval.ms, Kafka's default."""

TRANSACTION_ABORT_CHECK_MS = 10 * 1000
"""transaction.abort.timed.out.transaction.cleanup.interval.ms, Kafka's default: how often markers are tried again that
a partition could not take. Transactions are aborted when their time is over, without waiting for it."""

TRANSACTIONAL_IDS_MAX = 100_000
"""Transactional ids in memory, a kilobyte each: beyond this somebody is making up names."""

EARLY_COMMITS_MAX = 1000
"""Producers of which is remembered that their commit came before what it commits: they come again within a second."""

TRANSACTION_PARTITIONS_MAX = 1_000_000
"""Partitions in all open transactions together, about 100 bytes each; who would add to them asks again later."""

RETENTION_CHECK_MS = 5 * 60 * 1000
"""log.retention.check.interval.ms, Kafka's default."""

TIER_CHECK_MS = 30 * 1000
"""remote.log.manager.task.interval.ms, Kafka's default: how often sealed segments are copied to the store."""

TIER_FIRST_CHECK_MS = 1000
"""How soon after opening, and after a topic has changed."""

TIER_CACHE_BYTES = 64 << 20
"""What is kept in memory of objects that were read: sixteen blocks, so that some readers go on side by side."""

RETENTION_FIRST_CHECK_MS = 30 * 1000
"""How soon after opening: as Kafka does, so that logs which are never open for long are kept in bounds too."""

COMPACTION_BACKOFF_MS = 15 * 1000
"""log.cleaner.backoff.ms, Kafka's default: how long to rest after a round of compaction."""

COMPACTION_RETRY_MAX_MS = 3600 * 1000
"""How long a compaction rests at most that failed again and again: a full disk is not filled four times a minute with
drafts, and within an hour of its repair all is as it was."""

PRODUCER_EXPIRY_CHECK_MS = 10 * 60 * 1000
"""producer.id.expiration.check.interval.ms, Kafka's default."""

SHARE_UPDATES_PER_SNAPSHOT = 500
"""share.coordinator.snapshot.update.records.per.snapshot, Kafka's default: what a load has to apply to each state."""

SHARE_STATE_RECORDS_MAX = 100_000
"""Records of `__share_group_state` after which its head is cut off: a load reads about twice as many at most."""

SHARE_STATES_MAX = 100_000
"""Partitions in share groups that are held in memory, about a kilobyte each: beyond this groups are refused."""

OFFSETS_EXPIRY_CHECK_MS = 10 * 60 * 1000
"""offsets.retention.check.interval.ms, Kafka's default."""

WARNINGS_MAX = 100
"""Different warnings a broker keeps; the newest, since a fault that repeats is kept once."""

PRODUCER_BUFFER_BYTES = 32 << 20
"""What a producer may have sealed and not yet durable before send() waits: buffer.memory, Kafka's default."""

CONSUMER_BUFFER_BYTES = 16 << 20
"""What a consumer decodes ahead, over all its partitions: with many of them, each gets a smaller slice."""

FETCH_BYTES_MIN = 32 << 10
"""The smallest slice a consumer asks for: below this the cost of a read is in the call, not in the bytes."""

ARROW_READ_BYTES = 8 << 20
"""One slice of a bulk read, one chunk of the table: large enough for huge pages (1.5 GB/s with 1 MiB, 2.7 with 8)."""

ARROW_DECOMPRESSED_BYTES = 32 << 20
"""What one chunk may expand to, and one batch more: a slice of well compressed batches holds gigabytes."""

ARROW_KEPT_BYTES = 256 << 20
"""Memory of columns that nobody has any more, kept for the next ones; the kernel may take it at any time."""

ARROW_READ_THREADS = 4
"""Of one bulk read. They work outside the interpreter's lock; more than the disk and memory can feed are idle."""

ARROW_PACK_BYTES = 2 << 20
"""What a bulk append packs ahead of the write: while it is in the cache, writing it costs half."""

ARROW_SYNC_BYTES = 8 << 20
"""What a bulk append writes between two syncs: below, the disk waits for the sync; above, nothing is gained."""

ARROW_WRITE_BYTES = 512 << 10
"""Batches of a bulk append are written this many bytes at a time."""

ARROW_BATCH_BYTES = 64 << 10
"""Batches of a bulk append: who reads one record reads one batch, and who reads all hardly notices the headers."""

REQUEST_ITEMS_MAX = 1 << 18
"""Items of all arrays of one request: 100,000 partitions fit, and what a frame of two-byte items makes is 40 MB."""

RESPONSE_ITEMS_MAX = 1 << 24
"""Items of all arrays of one response: a client asked for it, and DescribeLogDirs names every replica there is."""

STEP_ITEMS = 500
"""Items that the event loop decodes, or encodes, before it looks at other connections: about a millisecond."""

RUN_PARTITIONS_MAX = 2000
"""Partitions that one run of Produce requests writes to, each with a system call: 10 to 20 ms. A request for more is
handled in parts."""

FETCH_SLICE_PARTITIONS = 2000
"""Partitions that a Fetch reads before the event loop looks at other connections: 1 to 20 ms."""

COLLECTION_DELAY_MAX_S = 60
"""For so long large requests may keep the garbage collector from a full run."""

STEP_BYTES = 4 << 10
"""A request up to this size is decoded in one step: it holds a few hundred items, or two thousand of two bytes."""

STRUCT_TAGS_MAX = 1 << 11
"""Unknown tagged fields of one struct: Kafka adds a few in years, and they are skipped in one go."""

HEADER_TAGS_MAX = 64
"""Tagged fields of a header, read before anybody knows who asks: Kafka has defined none so far."""

RECORDS_INLINE_BYTES_MAX = 4 << 10
"""Records up to this are copied into the response: one buffer more to send costs as much as the copy of 4 KB."""

FETCH_SESSION_PARTITIONS_MAX = 200_000
"""Partitions that fetch sessions remember, all together, about 250 bytes each: beyond this, fetches name them again."""

FETCH_SESSION_EVICTION_MS = 2 * 60 * 1000
"""How long a fetch session that is not used keeps its slot: min.incremental.fetch.session.eviction.ms of Kafka."""

FRAME_FIRST_BYTES = 64 << 10
"""What a connection reserves for a frame before its bytes come; a longer one gets more as they do."""

STRANGERS_BYTES = 32 << 20
"""Memory of all connections that have not logged in, apart from queued.max.request.bytes: they cannot take from those
who have. Some 400 of the largest tokens at once; a login by password has some hundred bytes, in one piece."""

REQUESTS_IN_FLIGHT_MAX = 128
"""Of one connection: clients send 5 (Java) to a few dozen (librdkafka, a million by its settings) ahead of answers."""

REFUSED_TURN_MS = 1
"""Between two Produce requests of connections whose last one was refused for what it was: however many such connections
there are, a tenth or two of the loop's time is theirs."""

CONNECTION_STALL_MS = 10_000
"""While memory is short: how long a connection may hold a part of a frame, or an answer it does not read."""

MEMORY_TURN_STALL_MS = 2000
"""How long the one connection may do so that exceeds the limit while all others wait for it."""

MEMORY_TURN_SWEEPS = 5
"""Seconds after which it is the next one's turn, so that nobody who sends a byte now and then keeps all others out."""

PEM_BYTES_MAX = 1 << 20
"""A file with keys and certificates: some hundred authorities. What is larger is something else."""

TLS_HANDSHAKE_MS = 10_000
"""How long a client may take from connecting to the end of its handshake: a slow line needs some hundred milliseconds,
and who never ends it holds a connection and a few kilobytes."""

TLS_RECORD_BYTES = 16 << 10
"""What TLS encrypts as one, at most. OpenSSL's buffers never shrink: they are fed and emptied in pieces of a record or
few, so that a connection keeps little of what it once received or sent."""

TLS_STATE_BYTES = 24 << 10
TLS_GROWN_BYTES = 64 << 10
"""What OpenSSL keeps for a connection, as the memory budget counts it: from its client's first record on, and once it
has carried large ones. Measured: 18 KB, and 40 to 60 KB (`make bench ARGS="--section tls"`)."""

TLS_SHARE = 2
"""Connections with TLS may have this part of the memory budget, a half, for what OpenSSL keeps; more are refused. It
comes back only with the connection: if it could be all of the budget, everybody would wait for nothing."""

TLS_RECEIVE_BYTES = 256 << 10
"""Of encrypted bytes in one receive, in memory that all connections share. What of them has to wait, while the
connection may not read, is its own, and counts in the memory budget."""

TLS_LOOK_MS = 2000
"""How often certificate files are looked at: whoever replaces one sees it in use within seconds."""

HTTP_CONNECTIONS_MAX = 64
"""Of the HTTP listener: a few scrapers, a few browsers. Each may hold a page of metrics that it does not read."""

HTTP_STRANGERS_PER_ADDRESS_MAX = 8
"""Of those, from one address and not logged in: a browser opens six to a page. One that stalls, or whose failed login
waits for its answer, holds its place for seconds; from one address that is an eighth of the places."""

HTTP_HEADER_BYTES_MAX = 16 << 10
"""Request line and headers: what browsers send is a tenth of it."""

HTTP_BODY_BYTES_MAX = 1 << 20
"""Of a request: what a page asks for is text."""

HTTP_STALL_MS = 30_000
"""How long a connection may take to send a request, or to read a piece of its answer; twice a usual scrape interval."""

CONSOLE_LISTENERS_MAX = 24
"""Pages that listen to the console's events at the same time. Each holds one of the connections above for as long as it
is open, and asks on others."""

CONSOLE_CELLS_MAX = 400
"""Records of one strip: more than a screen shows."""

CONSOLE_READ_BYTES_MAX = 4 << 20
"""What one request of the console reads of the log, but for a single batch that is larger."""

CONSOLE_EXPANDED_BYTES_MAX = 16 << 20
"""What that may expand to, and one batch more; a strip ends there, and the next one goes on."""

CONSOLE_FIELD_BYTES_MAX = 256 << 10
"""Of a key, a value or a header that is shown; what is longer is cut, and says so."""

CONSOLE_SEGMENTS_MAX = 1000
"""Segments that one answer describes: each takes a look into its file."""

CONSOLE_ROWS_MAX = 1000
"""Records of a table, in one answer or in one file."""

CONSOLE_ROW_BYTES_MAX = 2 << 10
"""Of a key, a value or a header in a row of a table; the record itself shows more."""

CONSOLE_DOWNLOAD_BYTES_MAX = 32 << 20
"""What a file of records from the console may read, and hold."""

CONSOLE_HISTORY_STEP_MS = 15_000
CONSOLE_HISTORY_SAMPLES = 1440
"""Rates and lags that the broker keeps for the console's charts: six hours."""

CONSOLE_HISTORY_SERIES_MAX = 200
"""Topics, and groups in a topic, of which those are kept: 12 KB each."""

CONSOLE_PROBLEMS_MAX = 100
"""Problems that are told at the same time, of whatever kind."""

CONSOLE_RECENT_LINES_MAX = 50
"""Warnings and errors of the process's log that the console shows."""

CONSOLE_SCENE_RECORDS_MAX = 12
"""Records of the scene "Log or queue?": as many as a phone shows side by side."""

CONSOLE_SCENE_VALUE_CHARS_MAX = 16
"""Of a record's value in the scene: what fits a cell."""

NODE_JOIN_MS = 10_000
"""How long a node waits for another that has its directory and does not listen yet: nodes are started together."""

WRITER_SEARCH_MS = 3000
"""How long to look for whoever writes a directory: a server needs less between taking the lock and listening."""

WRITER_REST_MS = 20
"""Between two times of being the writer for a moment, so that a server that is starting finds the lock free."""

WRITER_MOMENT_MS = 1000
"""How long a process that appends much to a directory without a server keeps the lock: others look for three times as
long before they say that it is taken."""

NUMBERED_IN_FLIGHT_BYTES = 32 << 20
"""Batches with decided numbers on their way to a directory's writer: many syncs' worth, and little for a process."""

WRITER_ANSWER_MS = 60_000
"""How long the process that serves a directory may be silent before it is given up. A slow disk is well below it."""

WRITER_LOSSES_MAX = 3
"""Connections that may be lost in a row without one answer before what waits for it is told."""

RECORD_ERRORS_MAX = 100
"""Records of a refused batch that are named one by one: a batch may hold a million, and a client corrects a few."""

SYNC_WAIT_MS = 10_000
"""How long an answer about the end of a log waits for the sync of what is written. A sync takes milliseconds, on a bad
disk a second; clients give up after 30 s, and should hear before that it was the disk."""

CONSOLE_SYNC_WAIT_MS = 1000
"""How long the console's overview waits for such syncs: it is where somebody looks when the disk hangs."""

PRODUCE_IN_FLIGHT_MAX = 5
"""Batches of a producer on their way to one partition: as many as the log can tell from repetitions."""

PRODUCE_REQUEST_BYTES = 1 << 20
"""How much one request carries to several partitions: Kafka's max.request.size. A larger batch goes alone."""

ANSWER_BYTES_MAX = 64 << 20
"""The largest answer a client takes: a group's metadata for its leader is below 10 MiB, and nothing else comes near."""

MEMBER_SESSION_MS = 10_000
"""session.timeout.ms of a consumer in another process than the coordinator: how long a killed one keeps its share."""

MEMBER_HEARTBEAT_MS = 500
"""How often such a consumer shows that it lives, and so how soon it notices that its group is rebalancing."""

MEMBER_JOIN_WAIT_MS = 5000
"""How long subscribing waits for its share while members of other processes are awaited; it comes later then."""

CLUSTER_SEARCH_MS = 3000
"""How long opening looks for a broker where all addresses refuse: who typed a wrong one should not wait a minute."""

LISTENER_PROBE_MS = 3000
"""How long a listener that did not answer is asked what it speaks: who speaks at all does so sooner. Who hangs is
asked once, and no other is."""

LISTENER_SILENCE_MS = 1000
"""How long a broker that has shaken hands may take to say that it does not take our certificate."""

LISTENER_PROBES_MAX = 3
"""How many of a cluster's listeners are asked: what is wrong with one is wrong with all, mostly."""

KAFKA_CONNECT_MS = 10_000
"""How long `foldlog.connect` waits for an answer where nobody refuses: a handshake over a slow line takes seconds."""

KAFKA_CALL_MS = 30_000
"""How long a cluster may take for one question: Kafka's request.timeout.ms, in which a leader can be elected."""

KAFKA_DELIVERY_MS = 120_000
"""How long a record may wait to be acknowledged by a cluster: Kafka's delivery.timeout.ms. A broker can restart."""

KAFKA_JOIN_WAIT_MS = 10_000
"""How long subscribing waits for a share of a cluster's topics: Kafka waits 3 s for more members of a new group."""

KAFKA_LOOK_MS = 10_000
"""How often a reader without a group looks whether its topics in a cluster are as they were, unless
topic.metadata.refresh.interval.ms is set."""

EVICTION_TRIES_MAX = 50
"""How often members are asked to leave a group before it is given up: each can be back before the commit is there."""

EVICTION_PAUSE_MS = 100
"""How long between two of these tries: 5 s in all. A group that has just begun waits group.initial.rebalance.delay.ms,
3 s by default, for more members, also when all have gone."""

CLUSTER_ANSWER_BYTES_MAX = 272 << 20
"""The largest answer of a foreign broker: one batch, 256 times Kafka's default for its size, and what stands around it.
The first bytes of HTTP or TLS, read as a length, are more."""

CLUSTER_FETCH_BYTES = 1 << 20
"""max.partition.fetch.bytes, Kafka's default: what is received, checked and gathered finds it in the cache. Twice as
fast as with 8 MiB on one machine; where a broker is far away, more is better."""

CLUSTER_ODD_ANSWERS_MAX = 3
"""Answers in a row that cannot be understood, before asking again is given up: garbage does not pass with time."""

SCRAM_ITERATIONS_MIN = 4096
"""What RFC 7677 asks for, and Kafka's least: with fewer, whoever listens finds the password sooner."""

SCRAM_ITERATIONS_MAX = 1_000_000
"""How often a broker may have a password hashed: about a second of work. Kafka has at most 16,384."""

OAUTH_ANSWER_BYTES_MAX = 1 << 20
"""The answer of a token endpoint is a token of some kilobytes and a few numbers."""

SALT_BYTES_MAX = 1024
"""Of a credential: Kafka's tools make 16 to 32, and it is sent to whoever begins a login with the user's name."""

SCRAM_MESSAGE_BYTES_MAX = 16 << 10
"""A message of a SCRAM exchange has some hundred bytes: two nonces, a salt and a number."""

USER_NAME_CHARACTERS_MAX = 256
"""Of a user's name: it stands in every ACL, log line and answer about it."""

PASSWORD_CHARACTERS_MAX = 1024
"""Of a password: a longer one is no safer, and hashing a megabyte before somebody is known is work for nothing."""

LOGIN_S = 15.0
"""How long a connection may take to log in: some round trips, and the longest answer to a failure."""

LOGIN_HASHES_MAX = 2
"""Passwords that are hashed at the same time, some 10 ms of a core each."""

FAILED_LOGIN_DELAY_MAX_MS = 5_000
"""The longest that the answer to a failed login waits: 17,000 guesses a day from one address, on one connection."""

FAILED_LOGIN_REMEMBERED_S = 60.0
FAILED_LOGIN_HOSTS_MAX = 10_000
"""Addresses whose failed logins are remembered."""

TOKEN_BYTES_MAX = 64 << 10
"""A token of OAUTHBEARER: with many claims some kilobytes."""

BEARER_BYTES_MAX = TOKEN_BYTES_MAX + (16 << 10)
"""The message around a token: a name and some extensions."""

TOKEN_CHECKS_MAX = 2
"""Tokens that are checked at the same time, some 0.1 ms of a core each, on threads that others need."""

LOGIN_CHECKS_PER_S = 5.0
"""How often passwords and tokens from an address are looked at that has shown a wrong one in the last minute."""

JWKS_BYTES_MAX = 1 << 20
JWKS_TIMEOUT_S = 10.0
"""The keys that sign tokens: some kilobytes, and how long their address may take, all in all."""

JWKS_COOLDOWN_S = 10.0
"""How soon these keys are asked for again because a token names one that is unknown: anybody can make such tokens."""

JWKS_RETRY_S = 60.0
"""How soon they are asked for again after that has failed."""

CONSOLE_SESSION_MS = 12 * 3600 * 1000
CONSOLE_SESSIONS_MAX = 1000
"""Logins to the console: a working day long, and how many at once; the oldest ends first."""

AUDITED_NAMES_MAX = 20
"""Names in a line of the audit log; a request may have thousands."""

QUOTA_BUCKETS_MAX = 100_000
"""Users, client ids and addresses whose use is remembered, some 30 MB: client ids are the clients' to make up."""

QUOTA_CLIENT_IDS_MAX = 16
"""Client ids of one connection whose quotas are remembered: most have one."""

HELD_CONNECTIONS_MAX = 256
"""Connections beyond their address's rate that are kept, unread, before they are closed. More are closed at once: who
opens thousands must not use up all descriptors."""

DECISIONS_MAX = 100_000
"""Remembered answers of ACLs, some 20 MB: clients repeat their questions, and names are theirs to make up."""

ACCESS_BYTES_MAX = 16 << 20
"""Users, ACLs and quotas of a directory, as stored: some 100,000 ACLs. Each change writes all of it."""

SESSION_SHARE_PERCENT = 85
"""When a connection whose login expires is replaced: as early in its life as Kafka's own clients log in again."""

CLUSTER_RANGES_MAX = 16
"""Partitions that one reader fetches at the same time: each has a connection, and an answer of about a megabyte."""

CLUSTER_EMPTY_ANSWERS_MAX = 3
"""Fetches of a compacted topic that bring nothing below its end, before the rest is taken for a compacted gap."""

VIEW_LOCK_WAIT_MS = 10_000
"""How long a view's transaction waits for whoever else holds its table, before it says who that is."""

VIEW_APPLY_LOCK_WAIT_MS = 1_000
"""How long it waits while a range is stored: the fold tries again by itself, and others that the same runner moves have
to wait meanwhile."""

FOLD_PROOF_AGE_MS = 5 * 60 * 1000
"""How old the proof of a record for `__folds` may be, or how far ahead: clocks of two machines differ by less, and who
reads the topic cannot send again later what he has read."""

FOLD_COMMANDS_REMEMBERED = 10_000
"""Commands that a runner knows again: more than anybody asks for while a proof is good."""

PEEK_DEADLINE_MS = 15_000
"""When a process that looks into a view is killed, whatever it does: a look has PEEK_MS for each of its waits and
statements, and the process may have to start and to load an engine first."""

PEEK_IDLE_MS = 60_000
"""How long such a process waits for the next question: starting one takes half a second, keeping it some 100 MB."""

PEEK_MEMORY_BYTES = 2 << 30
"""What such a process may allocate: a file that unpacks into more is not for a look."""

PEEK_ANSWER_BYTES_MAX = 64 << 20
"""Of the JSON that it answers with: PEEK_ROWS_MAX rows of many long values are far less."""

PEEK_ROWS_MAX = 500
"""Rows that one look into a view gives: they are for people."""

PEEK_MS = 3000
"""How long a look into a view may take, and how long it may wait for whoever writes; then it says so."""

PEEK_COUNT_ROWS_MAX = 1_000_000
"""A table's rows are counted up to here, which takes a tenth of a second; beyond, nobody is told a number."""

PEEK_TEXT_CHARS_MAX = 2000
"""Of a value that is shown; the rest is cut."""

PEEK_SERIES_ROWS_MAX = 20_000
"""Rows of counters that a chart is made of."""

VIEW_CONNECT_MS = 10_000
"""How long a database may take to answer a first connection."""

POSTGRES_KEY_SURE_BYTES = 2000
"""Text and binary of a key that every index of PostgreSQL's takes: it has room for 2704 bytes, of which 32 columns need
some 500 for themselves. Whether it takes a longer one depends on how well that packs, so it is asked."""

POSTGRES_STAGE_CONNECTIONS_MAX = 8
"""How many executors copy rows into a PostgreSQL server at once: each takes a connection, of which it has a hundred."""

POSTGRES_SWEEP_WAIT_MS = 100
"""How long removing a table of a range that was not committed waits for one who still copies into it."""

FOLD_PLANS_MAX = 32
"""Plans of a fold whose facts are kept: a function that builds another one for each range is looked at each time."""

FOLD_NEW_COLUMNS_MAX = 200
"""The most columns that a view gets for fields that its topic's schema does not name."""

FAULTY_RECORDS_MAX = 100
"""Records of one range that a fold may fail at before the fold is said to be wrong, and not they. Each takes
some twenty small jobs of Spark to be found among 2,000, and some thirty among a million."""

FOLD_LETTERS_BYTES = 1 << 20
"""What one task tells the driver of records that do not parse: some ten thousand of 100 bytes. What a task was to read
that meets more is looked through once more."""

FOLD_NEAR_OFFSETS = 4000
"""Ranges up to this long are read by the driver itself: a task would take longer to start. Below what a second task is
worth, and what Spark keeps in a plan."""

FOLD_NEAR_BYTES = 1 << 20
"""Such ranges hold at most about this much."""

FOLD_BACKFILL_KEYS_MAX = 100_000
"""Keys of one backfill: the driver holds all their rows, and a rebuild is soon faster."""

FOLD_PREVIEW_MAX = 10_000
"""The most records of a preview: the driver holds them, and somebody reads them."""

FOLD_TRIAL_OFFSETS = 1000
"""Of a topic's beginning, what a fold is tried on before it first stores anything: it is folded a second time, and
compared in the driver's own Python."""

FOLD_TRIAL_YOUNG_OFFSETS = 5
"""As long as a view has read less, its fold is tried again at each range, together with what it has read: of one record
there is nothing to cut."""

LAKE_COMMIT_TRIES = 20
"""How often a lake view's commit is tried again when somebody else's came first, such as a compaction's."""

LAKE_SORT_ROWS = 500_000
"""Rows of a bulk load into a keyed lake table that are brought to the newest of each key at once: some 300 MB."""

LAKE_ROW_GROUP_ROWS = 131_072
LAKE_ROW_GROUP_BYTES = 64 << 20
"""The most of a row group of files that executors write: a task holds as much in memory."""

LAKE_PARTITIONS_MAX = 1000
"""The most values of the columns by which a lake table is partitioned in one range: each is a file."""

FOLD_STAGED_OFFSETS_MIN = 40_000
"""A shorter range goes through the driver, where a view could take it from the executors: it is one task's work, and a
file of each task would be a small one."""

VIEW_SCAN_ROWS = 16_384
"""Rows of a batch when a whole view is read: a few megabytes, whatever the view's size."""

SPARK_BATCH_ROWS_MIN = 10_000
"""Arrow batches for Spark are merged up to this: each costs a fixed effort, which is lost among ten thousand rows."""

SPARK_BATCH_ROWS_MAX = 100_000
"""And cut to this: beyond it nothing is gained, and Spark holds a batch whole."""

SPARK_BATCH_BYTES = 16 << 20
"""And to about this many bytes, for the same reason."""

STAGED_WRITE_BYTES = 1 << 20
"""What a task packs between two writes to its staged file."""

STAGED_PACK_BYTES = 16 << 20
"""Rows that a task gathers before it packs them: spread over a hundred partitions they still make batches."""

STAGED_BATCH_BYTES = 256 << 10
"""Batches of a Spark sink, before compression: an append costs the same for less, and readers read whole ones."""

STAGED_LOCK_WAIT_MS = 10 * 60 * 1000
"""How long a commit of a Spark sink waits for another one to the same directory, which may be a large one."""

STAGED_LEFTOVER_MS = 3 * 24 * 3600 * 1000
"""Staged files in a directory to which nothing was added for so long belong to a job that is gone."""

STAGED_PARTITIONS = 6
"""Of the topic in which tasks stage rows: as many brokers share the work."""

STAGED_RETENTION_MS = 24 * 3600 * 1000
"""How long rows stay in that topic: a job that runs longer than this cannot commit what it staged first."""

STAGED_SEGMENT_BYTES = 64 << 20
"""Segments of that topic: they go one by one once they are old."""

STAGED_MESSAGE_BYTES = 64 << 20
"""max.message.bytes of that topic: a row may be as large as its own topic allows, and is packed once more."""

STAGED_TRANSACTION_MS = 5 * 60 * 1000
"""transaction.timeout.ms of a Spark commit: some 10 GB can be sent in it, and where a driver was killed and is not
started again, readers of committed records wait no longer."""

COMMITS_SEGMENT_BYTES = 1 << 20
"""Segments of the topic of commits, 300 bytes each: they are compacted once they are full. Kafka's minimum."""

COMMITS_FIRST_OFFSETS = 512
"""How far from its end that topic is read at first: a query that is running is found there."""

STAGED_SENDERS_MAX = 10_000
"""Queries whose last batch a directory remembers, about 100 bytes each; the one silent longest is forgotten."""

JSON_CHUNK_BYTES = 1 << 20
"""JSON that is joined and parsed in one go: what it is copied to is still in the cache."""

JSON_EXACT_ROWS = 512
"""Around a record that does not parse so many are read one by one: as long as one more call of Arrow's reader takes."""

SPARK_KEYS_BYTES = 64 << 20
"""What latestPerKey holds of keys and offsets in one task, some two million keys; grouping them takes a few times as
much. More keys take more passes."""

REGISTRY_ANSWER_BYTES_MAX = 4 << 20
"""A schema of a registry: the largest that are written by hand have tens of kilobytes."""

REGISTRY_RECORD_BYTES_MAX = 8 << 20
"""A record of `_schemas`: a request of HTTP_BODY_BYTES_MAX whose characters are all written as escapes."""

REGISTRY_CONNECTIONS_MAX = 256
"""Clients of the schema registry at the same time. Each holds a request of up to HTTP_BODY_BYTES_MAX; most ask once for
each schema, and are gone."""

REGISTRY_STRANGERS_PER_ADDRESS_MAX = 32
"""Of those, from one address and not logged in: some machines run many producers, which start together."""

REGISTRY_PARSED_MAX = 1000
"""Schemas that a registry keeps parsed: what is registered again and again is not parsed again and again."""

REGISTRY_SUBJECT_CHARS_MAX = 1000
"""A subject's name: a topic's is a quarter of it, and records may have long names."""

REGISTRY_TIMEOUT_S = 10
"""How long a schema registry may take to answer, before the task that needs a schema fails."""

REGISTRY_LOOK_EVERY_S = 30
"""How often a running fold asks whether there is a newer version of the schema that it reads with."""

REGISTRY_SCHEMAS_MAX = 10_000
"""Schemas that a process remembers; an id never changes its meaning, so they are never asked for again."""

REGISTRY_REFERENCES_MAX = 100
"""Schemas that one schema may refer to, directly or not: a registry that names more is going in circles."""

INPUT_LINE_BYTES_MAX = 64 << 20
"""A line that the command line takes for a record: 64 times the default max.message.bytes, which refuses most of it."""

CHECK_JOBS_MAX = 256
"""How many segments `foldlog check` looks at at a time: each thread holds a megabyte or a batch, and more threads than
that only wait for the disk."""

BENCH_RECORDS_MAX = 1_000_000_000
BENCH_SIZE_MAX = 1_000_000
BENCH_SECONDS_MAX = 600
"""What `foldlog bench` may be asked for: a record has to fit the usual max.message.bytes, and somebody waits for it."""

BENCH_SAMPLES_MAX = 1_000_000
"""Single times that it keeps, 8 bytes and a number each."""

BENCH_BLOCK_BYTES = 1 << 20
BENCH_DISK_BYTES = 256 << 20
"""What it writes to the disk alone, in blocks: more than the caches of a controller, and soon gone."""

BENCH_WAIT_S = 30
"""How long an acknowledged record may take to its reader before the measurement is given up."""

COPY_WRITE_BYTES = 1 << 20
"""A copy into a directory appends about this many bytes at a time: what one read brings."""

COPY_SYNC_BYTES = 16 << 20
"""What a copy sends or writes before it waits for the acknowledgement, and notes how far it is. After a crash a copy to
a broker reads at most this much again, to see how much of it arrived."""

COPY_COMPARE_BYTES = 1 << 20
"""How much of what a directory has already is compared with the source, before a copy goes on after it."""

COPY_THREADS_MAX = 4
"""Partitions of a copy that are compared at the same time, and copied so where a cluster is one of the sides."""

COPY_POINTS_MAX = 100_000
"""Pairs of offsets that a copy to a broker keeps of one partition, 100 bytes each: from there on every other one is let
go, and between two of them records are counted."""

CELL_BYTES_MAX = 64 << 10
"""What a table on a terminal shows of a key or value: many screens. A value of 200 MB took gigabytes to be drawn."""
