// Refusing, and lists that refuse what lies beyond them.
//
// Rules index dimensions, sizes and arguments by what an operator's schema says. A graph that comes
// from outside may say otherwise; such a call is refused like any other that the rule does not
// expect.
#pragma once

#include <cstddef>
#include <string>
#include <vector>

namespace nc::padding {

// The call cannot be padded, and why (for the user). Thrown by rules, caught by the engine.
struct Refusal {
  std::string reason;
};
[[noreturn]] void refuse(std::string reason);

template <class T>
class Checked : public std::vector<T> {
 public:
  using std::vector<T>::vector;
  T& operator[](std::size_t i) {
    check(i < this->size());
    return std::vector<T>::operator[](i);
  }
  const T& operator[](std::size_t i) const {
    check(i < this->size());
    return std::vector<T>::operator[](i);
  }
  T& front() { return (*this)[0]; }
  const T& front() const { return (*this)[0]; }
  T& back() { return (*this)[this->size() - 1]; }
  const T& back() const { return (*this)[this->size() - 1]; }

 private:
  static void check(bool inside) {
    if (!inside) refuse("it has fewer dimensions or arguments than its rule expects");
  }
};

}  // namespace nc::padding
