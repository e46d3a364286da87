// Everything public, for those who do not want to choose.
#pragma once

#include "octavo/backend/registry.h"
#include "octavo/base/error.h"
#include "octavo/convert/convert.h"
#include "octavo/format/decode.h"
#include "octavo/format/named_formats.h"
#include "octavo/format/parse_format.h"
#include "octavo/round/encode.h"
#include "octavo/round/policy.h"
#include "octavo/round/policy_names.h"
#include "octavo/round/profile.h"
#include "octavo/safetensors/file_reader.h"
#include "octavo/safetensors/file_writer.h"
#include "octavo/tensor/dlpack.h"
#include "octavo/tensor/tensor.h"
#include "octavo/tensor/view.h"
#include "octavo/version.h"
