// Maximises a concave function over a convex set by the ellipsoid method with deep cuts.
//
// The caller's oracle is asked at points x. It returns either a subgradient of the function with
// the value there, or, if x is outside the set, the normal of a half-space that contains the set:
// {y : normal * (y - x) >= 0}. Plain floating point without random numbers; the best point asked is
// returned. Source: Bland, Goldfarb and Todd, "The Ellipsoid Method: A Survey", Operations Research
// 29(6), 1981, section 3.

#ifndef HPLACER_ENGINE_BOUNDS_ELLIPSOID_H_
#define HPLACER_ENGINE_BOUNDS_ELLIPSOID_H_

#include <functional>
#include <vector>

namespace hplacer {

struct OracleAnswer {
  bool inside;
  double value;                   // if inside
  std::vector<double> direction;  // subgradient or normal
};

// `center` and `half_axes` are of the first ellipsoid, which must contain a maximum. `center` is
// the first point asked and must be inside.
std::vector<double> MaximizeConcave(
    const std::function<OracleAnswer(const std::vector<double>&)>& oracle,
    std::vector<double> center, const std::vector<double>& half_axes, int max_steps);

}  // namespace hplacer

#endif  // HPLACER_ENGINE_BOUNDS_ELLIPSOID_H_
