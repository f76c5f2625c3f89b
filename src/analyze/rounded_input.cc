#include "analyze/rounded_input.h"

namespace halfbyte {

EngineInput make_engine_input(const float* x, std::int64_t rows, const InputTransform& transform,
                              const QuantSpec& spec, ThreadPool& pool) {
  EngineInput input;
  input.rows = rows;
  input.residual = transform.info.residual;
  input.main = changed_columns(transform.info);
  if (input.residual) input.residual_at = residual_positions(transform);
  const float* changed = change_input(x, rows, transform, input.changed, pool);
  if (has_row_blocks(spec.format))
    round_input(changed, rows, transform.info, input.residual_at, {.spec = spec}, input.rounded, pool);
  return input;
}

}  // namespace halfbyte
