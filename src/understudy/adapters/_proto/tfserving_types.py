"""What TensorFlow Serving's messages call a datatype, and which field of theirs lists its elements."""

from collections.abc import Mapping

from understudy.adapters._proto import understudy_tfserving_pb2 as pb
from understudy.core.schema.tensors import Datatype

WIRE_TYPES: Mapping[Datatype, tuple["pb.DataType", str]] = {
    Datatype.BOOL: (pb.DT_BOOL, "bool_val"),
    Datatype.INT8: (pb.DT_INT8, "int_val"),
    Datatype.INT16: (pb.DT_INT16, "int_val"),
    Datatype.INT32: (pb.DT_INT32, "int_val"),
    Datatype.INT64: (pb.DT_INT64, "int64_val"),
    Datatype.UINT8: (pb.DT_UINT8, "int_val"),
    Datatype.FP32: (pb.DT_FLOAT, "float_val"),
    Datatype.FP64: (pb.DT_DOUBLE, "double_val"),
    Datatype.BYTES: (pb.DT_STRING, "string_val"),
}
DATATYPES: Mapping[int, tuple[Datatype, str]] = {
    int(number): (datatype, field) for datatype, (number, field) in WIRE_TYPES.items()
}
"""By the number that a message has for it."""
