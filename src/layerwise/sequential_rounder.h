// Error feedback through a whole model: layer by layer, each input's second moments taken from calibration text that has run through
// everything quantized before it.
#pragma once

#include <cstdint>
#include <memory>
#include <optional>
#include <string>
#include <vector>

#include "calibrate/samples.h"
#include "model/layer.h"
#include "model/linears.h"
#include "quantize/gptq.h"
#include "quantize/match_output.h"
#include "quantize/write.h"

namespace halfbyte {

// Throws bad_input for what error feedback does not cover: linears outside the layers, outlier channels.
void check_feedback(const QuantizePlan& plan, const ModelConfig& config);

// Of a plan with Rounding::feedback. Inside a layer the inputs come in the order q k v, o, gate up, down.
//
// Memory: for every calibration token hidden + heads * head_dim floats, and intermediate ones where that is at most 1 GiB (else they
// are computed twice), all of it twice with match_output; one layer's weights in float32 (twice with match_output); the moments of
// one input, 8 bytes for each of its (K + S)^2 pairs, some times over. Text runs through linears and into moments rounded to BF16,
// which engines do too. The same bytes for any number of threads, on one instruction set.
class SequentialRounder : public WeightRounder {
 public:
  // All of these must outlive it. Throws bad_input for a token outside the vocabulary. Arithmetic::f32: without that rounding.
  SequentialRounder(const Checkpoint& checkpoint, const ModelConfig& config, const QuantizePlan& plan,
                    const Producers& producers, const SampleSet& samples, ThreadPool& pool,
                    Arithmetic arithmetic = Arithmetic::bf16);
  ~SequentialRounder() override;

  std::vector<std::string> order() const override;
  QuantizedTensor round(const Weight& weight) override;
  void accept(const Weight& weight, const QuantizedTensor& quantized) override;

 private:
  // The text on its way through the layers: in the model as it is quantized, or in the original (its weights as the plan folds
  // and scales them).
  struct Stream {
    Layer layer;
    Array<float> x;         // [tokens, hidden] before the layer, or behind its attention once that is done
    Array<float> attended;  // [tokens, heads * head_dim] once its q, k and v are there
    Array<float> product;   // [tokens, intermediate] once its gate and up are there, or empty
  };
  // What the weights that read one input share.
  struct Prepared {
    std::string input;
    const LinearTransform* transform = nullptr;
    std::optional<ActivationSpec> activations;
    std::unique_ptr<ErrorFeedback> feedback;
    std::unique_ptr<OutputMatch> match;
  };

  bool follows_original() const { return plan_.feedback.match_output > 0; }
  std::vector<Stream*> streams();
  void load_layer();
  void install(const LinearInfo& info, Linear quantized, const Weight& weight);
  void advance_to(const LinearInfo& info);
  void step();
  void prepare(const LinearInfo& info, const Weight& weight, const Linear& linear);
  const LinearInfo& info_of(const Weight& weight) const;
  Linear linear_of(const LinearInfo& info, const Weight& weight);
  std::shared_ptr<const LinearTransform> transform_of(const std::string& input);
  bool keeps_products() const;
  const float* input_of(Stream& stream, LayerStages& stages, std::int64_t sample);
  void add_moment(const float* x, std::int64_t columns, std::vector<double>& total);
  void add_cross_moment(const float* y, const float* x, std::int64_t columns, std::vector<double>& total);
  void add_part(std::vector<double>& total);
  Array<float> plain(const std::string& name, const std::vector<float>* divisors = nullptr) const;

  const Checkpoint& checkpoint_;
  const ModelConfig& config_;
  const QuantizePlan& plan_;
  const SampleSet& samples_;
  ThreadPool& pool_;
  const Arithmetic arithmetic_;
  std::vector<LinearInfo> linears_;
  std::map<std::string, std::vector<float>> folded_;  // by tensor: divisors of its rows
  RopeTable rope_;
  ClippingCounts clipping_;
  std::int64_t rows_ = 0;  // tokens of a sample
  std::int64_t layer_ = -1;
  LinearInput place_ = LinearInput::mlp_product;  // in that layer
  Stream quantized_, original_;
  Prepared prepared_;
  Bf16Matrix left_, right_;  // scratch, as `part_` is: moments of one sample
  std::vector<float> part_;
  std::string transform_name_;
  std::shared_ptr<const LinearTransform> transform_;
};

}  // namespace halfbyte
