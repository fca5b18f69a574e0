"""Training and tagging where one machine is not enough, on Dask (chapter 15; extra: crfbook[distributed]).

    shards = write_shards(texts, folder, crf, client=client)   texts as files that many processes train on
    fit(crf, shards, client)                                   training on them, in place of `CRF.fit`
    predict_files(crf, files, out, client)                     tag files of columns or Parquet

client=None runs the same code in this process. Weights have the same bits for any client, None included.
Those of `CRF.fit`, which adds in another order, differ by rounding. Dask is needed for a client alone,
pyarrow for Parquet alone.
"""

from crfbook.distributed.engine import ClusterLost
from crfbook.distributed.fitting import fit
from crfbook.distributed.objective import ShardedObjective
from crfbook.distributed.shards import ShardError, Shards
from crfbook.distributed.tagging import Tagged, predict_files
from crfbook.distributed.writing import write_shards

__all__ = [
    "ClusterLost",
    "ShardError",
    "ShardedObjective",
    "Shards",
    "Tagged",
    "fit",
    "predict_files",
    "write_shards",
]
