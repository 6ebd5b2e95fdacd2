#include "engine/bounds/ellipsoid.h"

#include <cmath>
#include <cstddef>
#include <utility>

namespace hplacer {
namespace {

using Vector = std::vector<double>;

Vector Times(const std::vector<Vector>& matrix, const Vector& x) {
  Vector result(x.size(), 0.0);
  for (size_t i = 0; i < x.size(); ++i) {
    for (size_t j = 0; j < x.size(); ++j) result[i] += matrix[i][j] * x[j];
  }
  return result;
}

double Dot(const Vector& x, const Vector& y) {
  double sum = 0.0;
  for (size_t i = 0; i < x.size(); ++i) sum += x[i] * y[i];
  return sum;
}

}  // namespace

std::vector<double> MaximizeConcave(const std::function<OracleAnswer(const Vector&)>& oracle,
                                    Vector center, const Vector& half_axes, int max_steps) {
  const size_t size = center.size();
  const auto n = static_cast<double>(size);
  std::vector<Vector> shape(size, Vector(size, 0.0));
  for (size_t i = 0; i < size; ++i) shape[i][i] = half_axes[i] * half_axes[i];
  Vector best = center;
  double best_value = -HUGE_VAL;
  for (int step = 0; step < max_steps; ++step) {
    const OracleAnswer answer = oracle(center);
    if (answer.inside && answer.value > best_value) {
      best_value = answer.value;
      best = center;
    }
    const Vector stretched = Times(shape, answer.direction);
    const double width = std::sqrt(Dot(answer.direction, stretched));
    if (!(width > 0.0)) break;
    // How far the cut lies beyond the center: only points that beat the best one matter.
    const double depth = answer.inside ? (best_value - answer.value) / width : 0.0;
    const double reach = answer.inside ? width / std::fmax(std::fabs(best_value), 1e-300) : 1.0;
    if (!(depth < 1.0) || reach < 1e-7) break;
    const double move = (1.0 + n * depth) / (n + 1.0);
    for (size_t i = 0; i < size; ++i) center[i] += move * stretched[i] / width;
    if (size == 1) {  // the general formula divides by n^2 - 1
      shape[0][0] *= (1.0 - depth) * (1.0 - depth) / 4.0;
      continue;
    }
    const double squeeze = 2.0 * move / (1.0 + depth);
    const double swell = n * n * (1.0 - depth * depth) / (n * n - 1.0);
    for (size_t i = 0; i < size; ++i) {
      for (size_t j = 0; j < size; ++j) {
        shape[i][j] =
            swell * (shape[i][j] - squeeze * stretched[i] * stretched[j] / (width * width));
      }
    }
  }
  return best;
}

}  // namespace hplacer
